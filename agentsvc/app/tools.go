package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/command"
	"stoa/agentsvc/tool/function"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy/grant"
)

// toolBuilders are the tools that can be configured, by type.
var toolBuilders = map[string]func(b *builder, name string, t *config.Tool) (tool.Tool, error){
	"command":  newCommandTool,
	"function": newFunctionTool,
}

// sourceBuilders are those that have tools of their own, by type.
var sourceBuilders = map[string]func(b *builder, name string, t *config.Tool) (tool.Source, error){
	"mcp": newMCPServer,
}

// buildTools builds what is configured under tools: into b.sources what has tools of its own, the rest into b.tools.
func (b *builder) buildTools() {
	b.tools = make(map[string]tool.Tool, len(b.cfg.Tools))
	b.sources = map[string]tool.Source{}
	for name, t := range b.cfg.Tools {
		if t.Enabled {
			b.addProblem("tools."+name, b.buildTool(name, t))
		}
	}
}

func (b *builder) buildTool(name string, t *config.Tool) error {
	if source := sourceBuilders[t.Type]; source != nil {
		built, err := source(b, name, t)
		if err == nil {
			b.sources[name] = tool.SourceWithSettings(built, toolSettings(t))
		}
		return err
	}
	built, err := toolBuilders[t.Type](b, name, t)
	if err == nil {
		b.tools[name] = tool.WithSettings(built, toolSettings(t))
	}
	return err
}

// toolSettings are what can be said of every kind of tool.
func toolSettings(t *config.Tool) tool.Settings {
	s := tool.Settings{Timeout: t.MaxExecutionTime, Idempotent: t.Idempotent, Approval: approvalOptions(t)}
	if t.Type == "command" {
		s.Timeout += commandGrace
	}
	return s
}

// commandGrace is what a command gets beyond its time to be ended and to say what it had printed until then.
const commandGrace = 5 * time.Second

func newCommandTool(b *builder, name string, t *config.Tool) (tool.Tool, error) {
	if err := b.checkSandbox(); err != nil {
		return nil, err
	}
	at, err := b.resolvePath("working_directory", grant.Command, t.WorkingDirectory)
	if err != nil {
		return nil, err
	}
	c, err := command.New(b.sandbox, command.Options{
		Name: name, Description: t.Description, Folder: at.FullPath(), Root: at.Root, Timeout: t.MaxExecutionTime,
		Allowed: t.AllowedCommands, Denied: t.DeniedCommands, DenyByDefault: t.DenyByDefault,
	})
	if err != nil {
		return nil, err
	}
	sandboxName, full := b.sandbox.DescribeIsolation()
	level := slog.LevelInfo
	if !full {
		level = slog.LevelWarn
	}
	b.log.Log(context.Background(), level, "a tool runs programs of this host", "tool", name, "folder", t.WorkingDirectory, "sandbox", sandboxName)
	return c, nil
}

// checkSandbox reports whether programs of the host may run: the operator's own with what there is to hold them, those of
// others where nothing gets out.
func (b *builder) checkSandbox() error {
	if b.sandbox == nil {
		return errNoSandbox
	}
	if b.tenant.DefaultApp {
		return nil
	}
	return b.sandbox.CheckUntrusted()
}

func newMCPServer(b *builder, name string, t *config.Tool) (tool.Source, error) {
	o := mcp.Options{
		Name: name, Transport: mcp.Transport(t.Transport), URL: t.URL, Headers: t.Headers, HTTP: b.propagateTrace(b.egressClient.HTTPWithHeaderTimeout(t.MaxExecutionTime)),
		Command: t.Command, Args: t.Args, Env: t.Env, Filter: t.Filter, Description: t.Description, Optional: t.Optional,
		Pins: b.store, Logger: b.log,
	}
	if t.Command != "" && !b.tenant.DefaultApp {
		if err := b.checkSandbox(); err != nil {
			return nil, err
		}
		o.Sandbox, o.AllowNetwork = b.sandbox, b.tenant.PrivateNetwork
	}
	var err error
	if o.Credential, err = b.newCredential(name, t, t.URL); err != nil {
		return nil, err
	}
	server, err := mcp.New(o)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, server.Close)
	return server, nil
}

var errNoSandbox = errors.New("a program of this host needs a sandbox to be held with, and this host has none")

func newFunctionTool(b *builder, name string, t *config.Tool) (tool.Tool, error) {
	o := function.Options{Name: name, Description: t.Description, HTTP: b.egressClient.HTTPWithHeaderTimeout(t.MaxExecutionTime)}
	if function.NeedsFolder(t.Handler) {
		at, err := b.resolvePath("working_directory", grant.Filesystem, t.WorkingDirectory)
		if err != nil {
			return nil, err
		}
		o.Folder, o.Root = at.FullPath(), at.Root
	}
	if t.Parameters != nil {
		schema, err := json.Marshal(t.Parameters)
		if err != nil {
			return nil, agentsvc.NewInvalidError("parameters", "%v", err)
		}
		o.Parameters = schema
	}
	if t.Credential != nil {
		var err error
		if o.Credential, err = b.newCredential(name, t, t.Credential.URL); err != nil {
			return nil, err
		}
	}
	return function.New(t.Handler, o)
}

// newToolSet gathers the tools an agent names and more, behind its guard; one that is turned off is left out.
func (b *builder) newToolSet(names []string, maxOutput int, g *agentGuardrail, more ...tool.Tool) (*tool.Set, error) {
	var tools []tool.Tool
	var sources []tool.Source
	for _, name := range names {
		if t := b.tools[name]; t != nil {
			tools = append(tools, g.guardTool(t))
		}
		if s := b.sources[name]; s != nil {
			sources = append(sources, g.guardSource(s))
		}
	}
	for _, t := range more {
		tools = append(tools, g.guardTool(t))
	}
	if len(tools) == 0 && len(sources) == 0 {
		return nil, nil
	}
	set, err := tool.NewSet(tools, tool.Options{Sources: sources, MaxOutput: maxOutput, Decorator: b.toolTracer(), Logger: b.log})
	if err == nil {
		b.toolSets = append(b.toolSets, set)
	}
	return set, err
}
