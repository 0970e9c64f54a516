package config

import (
	"regexp"
	"time"
)

// Tool is something an agent can do: a built-in function, a command on the host, or the tools of an MCP server.
type Tool struct {
	// Type is what the tool is: an MCP server, a built-in function, or a command on the host.
	Type string `yaml:"type" jsonschema:"enum=mcp,enum=function,enum=command,default=mcp"`
	// Enabled turns the tool on. Agents that name a tool that is off do without it.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Description tells the model when to use the tool.
	Description string `yaml:"description"`
	// RequireApproval makes every call wait for a human. Without it, commands wait and other tools do not.
	RequireApproval *bool `yaml:"require_approval"`
	// ApprovalPrompt is what the human is asked.
	ApprovalPrompt string `yaml:"approval_prompt"`
	// ApprovalTimeout is how long a decision may take. After it the task is rejected. Without it, it may take for ever.
	ApprovalTimeout time.Duration `yaml:"approval_timeout"`
	// Idempotent says that a call whose outcome a crash left unknown may simply run again. Without it, it depends on the
	// tool.
	Idempotent *bool `yaml:"idempotent"`

	// URL is the address of an MCP server.
	URL string `yaml:"url" only:"type=mcp"`
	// Headers are sent to that address with each request, such as credentials for the server.
	Headers map[string]string `yaml:"headers" only:"type=mcp" secret:"true"`
	// Transport is how the MCP server is spoken to. Without it, it follows from `url` or `command`.
	Transport string `yaml:"transport" jsonschema:"enum=stdio,enum=sse,enum=streamable-http" only:"type=mcp"`
	// Command is the program of an MCP server that runs on this host.
	Command string `yaml:"command" only:"type=mcp"`
	// Args are the arguments of that program.
	Args []string `yaml:"args" only:"type=mcp"`
	// Env is the environment of that program.
	Env map[string]string `yaml:"env" only:"type=mcp" secret:"true"`
	// Filter is which of the MCP server's tools agents get. Without it, all.
	Filter []string `yaml:"filter" only:"type=mcp"`
	// Optional lets agents do without the server's tools while it cannot be reached. Without it, their turns fail.
	Optional bool `yaml:"optional" jsonschema:"default=false" only:"type=mcp"`

	// Handler is the built-in function: the time anywhere, an HTTP request, or arithmetic.
	Handler string `yaml:"handler" jsonschema:"enum=current_time,enum=http_request,enum=calculator" only:"type=function"`
	// Parameters is the JSON Schema of the arguments. Without it, it is the function's own.
	Parameters map[string]any `yaml:"parameters" only:"type=function"`

	// WorkingDirectory is the folder that commands run in and cannot leave.
	WorkingDirectory string `yaml:"working_directory" jsonschema:"default=./" only:"type=command" grant:"filesystem"`
	// MaxExecutionTime is how long a command may run.
	MaxExecutionTime time.Duration `yaml:"max_execution_time" only:"type=command"`
	// AllowedCommands are the programs that may run.
	AllowedCommands []string `yaml:"allowed_commands" only:"type=command"`
	// DeniedCommands are programs that may not run.
	DeniedCommands []string `yaml:"denied_commands" only:"type=command"`
	// DenyByDefault lets nothing run that is not in `allowed_commands`.
	DenyByDefault bool `yaml:"deny_by_default" jsonschema:"default=false" only:"type=command"`
}

var functionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (t *Tool) check(c *checks, s spot) {
	if !t.Enabled {
		return
	}
	switch t.Type {
	case "function":
		if !functionName.MatchString(s.path.part) {
			c.problem(s, "the name of a tool is 1 to 64 letters, digits, '_' or '-': models accept no other")
		}
		if !c.doc.has(s.value, "handler") {
			c.problem(s, "a function needs handler")
		}
	case "command":
		c.grant(s.child("type"), "command")
	case "mcp":
		t.checkServer(c, s)
	}
}

func (t *Tool) checkServer(c *checks, s spot) {
	stdio := t.Transport == "stdio"
	switch {
	case stdio:
		c.grant(s.child("transport"), "stdio")
	case t.Command != "":
		c.grant(s.child("command"), "stdio")
	}
	switch {
	case t.URL == "" && t.Command == "" && !c.doc.has(s.value, "url"):
		c.problem(s, "an mcp tool needs url or command (or set type: function or command)")
	case t.URL != "" && t.Command != "":
		c.problem(s.child("command"), "an mcp tool has a url or a command, not both")
	case stdio && t.URL != "":
		c.problem(s.child("url"), "transport stdio starts a command and has no url")
	case t.Transport != "" && !stdio && t.Command != "":
		c.problem(s.child("command"), "transport "+t.Transport+" needs a url and starts no command")
	}
	if t.URL != "" && t.Command == "" {
		for _, key := range []string{"args", "env"} {
			if c.doc.has(s.value, key) {
				c.problem(s.child(key), "belongs to a server with a command")
			}
		}
	}
	if t.Command != "" && c.doc.has(s.value, "headers") {
		c.problem(s.child("headers"), "belongs to a server with a url")
	}
}
