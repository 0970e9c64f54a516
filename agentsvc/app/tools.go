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

// toolKinds are the tools that can be configured, by type.
var toolKinds = map[string]func(b *builder, name string, t *config.Tool) (tool.Tool, error){
	"command":  commandTool,
	"function": functionTool,
}

// sourceKinds are those that have tools of their own, by type.
var sourceKinds = map[string]func(b *builder, name string, t *config.Tool) (tool.Source, error){
	"mcp": mcpServer,
}

// allTools builds what is configured under tools: into b.sources what has tools of its own, the rest into b.tools.
func (b *builder) allTools() {
	b.tools = make(map[string]tool.Tool, len(b.cfg.Tools))
	b.sources = map[string]tool.Source{}
	for name, t := range b.cfg.Tools {
		if t.Enabled {
			b.wrong("tools."+name, b.tool(name, t))
		}
	}
}

func (b *builder) tool(name string, t *config.Tool) error {
	if source := sourceKinds[t.Type]; source != nil {
		built, err := source(b, name, t)
		if err == nil {
			b.sources[name] = tool.SourceWith(built, settings(t))
		}
		return err
	}
	built, err := toolKinds[t.Type](b, name, t)
	if err == nil {
		b.tools[name] = tool.With(built, settings(t))
	}
	return err
}

// settings are what can be said of every kind of tool.
func settings(t *config.Tool) tool.Settings {
	s := tool.Settings{Timeout: t.MaxExecutionTime, Idempotent: t.Idempotent, Approval: approval(t)}
	if t.Type == "command" {
		s.Timeout += graceOfCommand
	}
	return s
}

// graceOfCommand is what a command gets beyond its time to be ended and to say what it had printed until then.
const graceOfCommand = 5 * time.Second

func commandTool(b *builder, name string, t *config.Tool) (tool.Tool, error) {
	if err := b.held(); err != nil {
		return nil, err
	}
	at, err := b.place("working_directory", grant.Command, t.WorkingDirectory)
	if err != nil {
		return nil, err
	}
	c, err := command.New(b.sandbox, command.Options{
		Name: name, Description: t.Description, Folder: at.Name(), Root: at.Root, Timeout: t.MaxExecutionTime,
		Allowed: t.AllowedCommands, Denied: t.DeniedCommands, DenyByDefault: t.DenyByDefault,
	})
	if err != nil {
		return nil, err
	}
	holder, whole := b.sandbox.Sandbox()
	level := slog.LevelInfo
	if !whole {
		level = slog.LevelWarn
	}
	b.log.Log(context.Background(), level, "a tool runs programs of this host", "tool", name, "folder", t.WorkingDirectory, "sandbox", holder)
	return c, nil
}

// held reports whether programs of the host may run: the operator's own with what there is to hold them, those of
// others where nothing gets out.
func (b *builder) held() error {
	if b.sandbox == nil {
		return errNoSandbox
	}
	if b.tenant.Own {
		return nil
	}
	return b.sandbox.Untrusted()
}

func mcpServer(b *builder, name string, t *config.Tool) (tool.Source, error) {
	o := mcp.Options{
		Name: name, Transport: mcp.Transport(t.Transport), URL: t.URL, Headers: t.Headers, HTTP: b.leading(b.out.Patient(t.MaxExecutionTime)),
		Command: t.Command, Args: t.Args, Env: t.Env, Filter: t.Filter, Description: t.Description, Optional: t.Optional,
		Pins: b.store, Logger: b.log,
	}
	if t.Command != "" && !b.tenant.Own {
		if err := b.held(); err != nil {
			return nil, err
		}
		o.Sandbox, o.Network = b.sandbox, b.tenant.Inside
	}
	var err error
	if o.Credential, err = b.credential(name, t, t.URL); err != nil {
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

func functionTool(b *builder, name string, t *config.Tool) (tool.Tool, error) {
	o := function.Options{Name: name, Description: t.Description, HTTP: b.out.Patient(t.MaxExecutionTime)}
	if function.NeedsFolder(t.Handler) {
		at, err := b.place("working_directory", grant.Filesystem, t.WorkingDirectory)
		if err != nil {
			return nil, err
		}
		o.Folder, o.Root = at.Name(), at.Root
	}
	if t.Parameters != nil {
		schema, err := json.Marshal(t.Parameters)
		if err != nil {
			return nil, agentsvc.Invalid("parameters", "%v", err)
		}
		o.Parameters = schema
	}
	if t.Credential != nil {
		var err error
		if o.Credential, err = b.credential(name, t, t.Credential.URL); err != nil {
			return nil, err
		}
	}
	return function.New(t.Handler, o)
}

// toolSet gathers the tools an agent names and more, behind its guard; one that is turned off is left out.
func (b *builder) toolSet(names []string, maxOutput int, g *guard, more ...tool.Tool) (*tool.Set, error) {
	var tools []tool.Tool
	var sources []tool.Source
	for _, name := range names {
		if t := b.tools[name]; t != nil {
			tools = append(tools, g.tool(t))
		}
		if s := b.sources[name]; s != nil {
			sources = append(sources, g.source(s))
		}
	}
	for _, t := range more {
		tools = append(tools, g.tool(t))
	}
	if len(tools) == 0 && len(sources) == 0 {
		return nil, nil
	}
	set, err := tool.NewSet(tools, tool.Options{Sources: sources, MaxOutput: maxOutput, Around: b.watchTool(), Logger: b.log})
	if err == nil {
		b.sets = append(b.sets, set)
	}
	return set, err
}
