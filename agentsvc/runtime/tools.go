package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/store/toolpin"
	"stoa/agentsvc/store/vault"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/command"
	"stoa/agentsvc/tool/function"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy/grant"
)

// toolBuilders are the types of tools, by their name in the configuration.
var toolBuilders = map[string]func(b *toolBuilder, name string, t *config.Tool) (tool.Tool, error){
	"command":  newCommandTool,
	"function": newFunctionTool,
}

// sourceBuilders are the types of tools that provide further tools, by their name in the configuration.
var sourceBuilders = map[string]func(b *toolBuilder, name string, t *config.Tool) (tool.Source, error){
	"mcp": newMCPServer,
}

// toolBuilder builds the tools of the configuration and the sets of the agents.
type toolBuilder struct {
	*hostAccess
	traces tracing
	pins   *toolpin.Store
	// vault is nil if there are no keys.
	vault *vault.Vault
	tools map[string]tool.Tool
	// sources are tools that provide further tools, such as MCP servers, by their configured name.
	sources map[string]tool.Source
	// toolSets are the sets of all agents, which newArgumentCheck searches.
	toolSets []*tool.Set
}

// buildTools builds the enabled tools of the configuration, into b.sources or b.tools.
func (b *toolBuilder) buildTools() {
	b.tools = make(map[string]tool.Tool, len(b.cfg.Tools))
	b.sources = map[string]tool.Source{}
	for name, t := range b.cfg.Tools {
		if t.Enabled {
			b.addProblem("tools."+name, b.buildTool(name, t))
		}
	}
}

// buildTool builds one tool and applies the settings that all types have.
func (b *toolBuilder) buildTool(name string, t *config.Tool) error {
	// A source is built without its tools: their names are only known once the server is asked, at the first use.
	if source := sourceBuilders[t.Type]; source != nil {
		built, err := source(b, name, t)
		if err == nil {
			b.sources[name] = tool.SourceWithSettings(built, toolSettings(t))
		}
		return err
	}
	built, err := toolBuilders[t.Type](b, name, t)
	if err == nil {
		// The settings wrap the tool inside of the guardrail and the tracing, which newToolSet adds for each agent.
		b.tools[name] = tool.WithSettings(built, toolSettings(t))
	}
	return err
}

// toolSettings returns the settings that all types of tools have.
func toolSettings(t *config.Tool) tool.Settings {
	s := tool.Settings{Timeout: t.MaxExecutionTime, Idempotent: t.Idempotent, Approval: approvalOptions(t)}
	if t.Type == "command" {
		s.Timeout += commandGrace
	}
	return s
}

// commandGrace is the time that a command gets beyond its own timeout, so that it is ended by the sandbox and its
// output so far is returned.
const commandGrace = 5 * time.Second

// newCommandTool builds a tool that runs programs of this host in a granted folder, inside the sandbox.
func newCommandTool(b *toolBuilder, name string, t *config.Tool) (tool.Tool, error) {
	sandboxErr := b.checkSandbox()
	at, err := b.resolvePath("working_directory", grant.Command, t.WorkingDirectory)
	if err != nil {
		return nil, errors.Join(sandboxErr, err)
	}
	// FullPath is the folder in which commands start, Root the granted folder that confines them; "" for the operator's
	// own app.
	c, err := command.New(b.sandbox, command.Options{
		Name: name, Description: t.Description, Folder: at.FullPath(), Root: at.Root, Timeout: t.MaxExecutionTime,
		Allowed: t.AllowedCommands, Denied: t.DeniedCommands, DenyByDefault: t.DenyByDefault,
	})
	if err := errors.Join(sandboxErr, err); err != nil {
		return nil, err
	}
	// The operator must be able to see that a host's sandbox isolates only in part.
	sandboxName, full := b.sandbox.DescribeIsolation()
	level := slog.LevelInfo
	if !full {
		level = slog.LevelWarn
	}
	b.log.Log(context.Background(), level, "a tool runs programs of this host", "tool", name, "folder", t.WorkingDirectory, "sandbox", sandboxName)
	return c, nil
}

// newMCPServer builds a source of the tools of an MCP server, which is reached by HTTP or started as a program.
func newMCPServer(b *toolBuilder, name string, t *config.Tool) (tool.Source, error) {
	o := mcp.Options{
		Name: name, Transport: mcp.Transport(t.Transport), URL: t.URL, Headers: t.Headers, HTTP: b.traces.propagateTrace(b.egressClient.HTTPWithHeaderTimeout(t.MaxExecutionTime)),
		Command: t.Command, Args: t.Args, Env: t.Env, Filter: t.Filter, Description: t.Description, Optional: t.Optional,
		Pins: b.pins, Logger: b.log,
	}
	var sandboxErr error
	// A tenant's server program runs in the sandbox; the operator's own runs as it is.
	if t.Command != "" && !b.tenant.DefaultApp {
		sandboxErr = b.checkSandbox()
		o.Sandbox, o.AllowNetwork = b.sandbox, b.tenant.PrivateNetwork
	}
	var credentialErr error
	o.Credential, credentialErr = b.newCredential(name, t, t.URL)
	server, err := mcp.New(o)
	if err := errors.Join(sandboxErr, credentialErr, err); err != nil {
		if server != nil {
			b.closers = append(b.closers, server.Close)
		}
		return nil, err
	}
	b.closers = append(b.closers, server.Close)
	return server, nil
}

// newFunctionTool builds one of the built-in tools.
func newFunctionTool(b *toolBuilder, name string, t *config.Tool) (tool.Tool, error) {
	o := function.Options{App: b.appID(), Name: name, Description: t.Description, HTTP: b.egressClient.HTTPWithHeaderTimeout(t.MaxExecutionTime)}
	var errs []error
	if function.NeedsFolder(t.Handler) {
		at, err := b.resolvePath("working_directory", grant.Filesystem, t.WorkingDirectory)
		errs = append(errs, err)
		o.Folder, o.Root, o.Guard = at.FullPath(), at.Root, b.folderGuard
	}
	if t.Parameters != nil {
		schema, err := json.Marshal(t.Parameters)
		if err != nil {
			errs = append(errs, agentsvc.NewInvalidError("parameters", "%v", err))
		}
		o.Parameters = schema
	}
	if t.Credential != nil {
		var err error
		o.Credential, err = b.newCredential(name, t, t.Credential.URL)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err // a folder that was refused is not opened
	}
	return function.New(t.Handler, o)
}

// newToolSet returns the set of the tools that an agent names and of more, behind its guardrail; nil if there are none.
// Disabled tools are not in b.tools and are left out.
func (b *toolBuilder) newToolSet(names []string, maxOutput int, g *agentGuardrail, more ...tool.Tool) (*tool.Set, error) {
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
	set, err := tool.NewSet(tools, tool.Options{App: b.appID(), Sources: sources, MaxOutput: maxOutput, Decorator: b.traces.toolTracer(), Logger: b.log})
	if err == nil {
		b.toolSets = append(b.toolSets, set)
	}
	return set, err
}
