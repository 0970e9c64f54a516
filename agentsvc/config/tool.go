package config

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc/config/document"
)

// Tool is something an agent can do: a built-in function, a command on the host, or the tools of an MCP server.
type Tool struct {
	// Type is what the tool is: an MCP server, a built-in function, or a command on the host.
	Type string `yaml:"type" jsonschema:"enum=mcp,enum=function,enum=command,default=mcp"`
	// Enabled turns the tool on. Agents that name a tool that is off do without it.
	Enabled bool `yaml:"enabled" jsonschema:"default=true"`
	// Description says when the model should use the tool.
	Description string `yaml:"description"`
	// RequireApproval makes every call wait for a human. Without it, commands and `write_file` wait and
	// other tools do not.
	RequireApproval *bool `yaml:"require_approval"`
	// ApprovalPrompt is what the human is asked.
	ApprovalPrompt string `yaml:"approval_prompt"`
	// ApprovalTimeout is how long a decision may take, after which the task is rejected, or its caller's credential, after
	// which it fails. Without it, there is no limit.
	ApprovalTimeout time.Duration `yaml:"approval_timeout"`
	// Idempotent says that a call whose outcome a crash left unknown may simply run again. Without it, it depends on the
	// tool.
	Idempotent *bool `yaml:"idempotent"`
	// Credential makes the tool send a header that each caller supplies the value of. A caller whose value is
	// missing is asked for it.
	Credential *Credential `yaml:"credential" only:"type=mcp|function"`
	// MaxExecutionTime is how long one call may take.
	MaxExecutionTime time.Duration `yaml:"max_execution_time" jsonschema:"default=30s"`

	// URL is the address of an MCP server.
	URL string `yaml:"url" only:"type=mcp"`
	// Headers are sent to that address with each request, such as credentials for the server.
	Headers map[string]string `yaml:"headers" only:"type=mcp" secret:"true" to:"url,headers"`
	// Transport is the transport to the MCP server. Without it, it follows from `url` or `command`.
	Transport string `yaml:"transport" jsonschema:"enum=stdio,enum=sse,enum=streamable-http" only:"type=mcp"`
	// Command is the program of an MCP server that runs on this host.
	Command string `yaml:"command" only:"type=mcp"`
	// Args are the arguments of that program.
	Args []string `yaml:"args" only:"type=mcp" to:"command,args,env"`
	// Env is the environment of that program.
	Env map[string]string `yaml:"env" only:"type=mcp" secret:"true" to:"command,args,env"`
	// Filter is which of the MCP server's tools agents get. Without it, all.
	Filter []string `yaml:"filter" only:"type=mcp"`
	// Optional lets agents do without the server's tools while it cannot be reached. Without it, their turns fail.
	Optional bool `yaml:"optional" jsonschema:"default=false" only:"type=mcp"`

	// Handler is the built-in function: the time anywhere, an HTTP request, a web page, arithmetic, a plan, or the files
	// of a folder.
	Handler string `yaml:"handler" jsonschema:"enum=current_time,enum=http_request,enum=calculator,enum=read_file,enum=write_file,enum=search_files,enum=web_fetch,enum=todo" only:"type=function"`
	// Parameters is the JSON Schema of the arguments. Without it, it is the function's own.
	Parameters map[string]any `yaml:"parameters" only:"type=function"`

	// WorkingDirectory is the folder that commands run in, and that commands and the functions read_file, write_file and
	// search_files cannot leave. An app has to name it, below a folder of its grant `command` or `filesystem`.
	WorkingDirectory string `yaml:"working_directory" jsonschema:"default=./" only:"type=command|function"`
	// AllowedCommands are the programs that may run, each a name or an absolute path. Without any, all may but those in
	// `denied_commands` and those that run other programs, such as shells.
	AllowedCommands []string `yaml:"allowed_commands" only:"type=command"`
	// DeniedCommands are programs that may not run, each a name or an absolute path.
	DeniedCommands []string `yaml:"denied_commands" only:"type=command"`
	// DenyByDefault demands that the programs that may run are listed in `allowed_commands`.
	DenyByDefault bool `yaml:"deny_by_default" jsonschema:"default=false" only:"type=command"`
}

// Credential is a header with which a tool sends what its caller has supplied, to one server and to no other.
type Credential struct {
	// Header is the name of the header.
	Header string `yaml:"header" jsonschema:"default=Authorization"`
	// Prompt is what the caller is asked. Without it, the question names tool, server and header.
	Prompt string `yaml:"prompt"`
	// URL is the address of the server that the functions http_request and web_fetch send it to; of a path, only scheme,
	// host and port count. An MCP server has its own.
	URL string `yaml:"url"`
}

// webHandlers are the functions that send HTTP requests.
var webHandlers = []string{"http_request", "web_fetch"}

// fileHandlers are the functions that work in a folder.
var fileHandlers = []string{"read_file", "write_file", "search_files"}

// functionNameForm is the form of a tool's name that the APIs of models accept.
var functionNameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// NeedsApproval reports whether every call of the tool waits for a human's decision: by require_approval, else for
// commands and write_file.
func (t *Tool) NeedsApproval() bool {
	if t.RequireApproval != nil {
		return *t.RequireApproval
	}
	return t.Type == "command" || t.Type == "function" && t.Handler == "write_file"
}

// checkRules checks the rules of the tool's type. A tool that is off is not checked.
func (t *Tool) checkRules(c *validation, s document.Location) {
	if !t.Enabled {
		return
	}
	if c.doc.HasValue(s.Value, "approval_prompt") && !t.NeedsApproval() {
		c.addProblem(s.Child("approval_prompt"), "asks nobody: it needs require_approval: true")
	}
	if t.Type != "mcp" && !functionNameForm.MatchString(s.Path.Part) {
		c.addProblem(s, "the name of a tool is 1 to 64 letters, digits, '_' or '-': models accept no other")
	}
	if t.MaxExecutionTime == 0 {
		c.addProblem(s.Child("max_execution_time"), "must be more than 0s")
	}
	t.checkCredential(c, s.Child("credential"))
	switch t.Type {
	case "function":
		t.checkFunction(c, s)
	case "command":
		t.checkCommand(c, s)
	case "mcp":
		t.checkMCPServer(c, s)
	}
}

// nonCredentialHeaders are headers that belong to the connection or the protocol, or that follow a redirect to any
// host. A credential in them would be lost or sent to a wrong host.
var nonCredentialHeaders = []string{
	"accept", "accept-encoding", "accept-language", "connection", "content-encoding", "content-length", "content-type", "expect", "forwarded",
	"host", "http2-settings", "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade", "user-agent", "via",
	"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip",
}

// headerNameForm is the token of RFC 9110, 5.6.2.
var headerNameForm = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// checkCredential checks that the credential has a server that it is sent to, and a header that can contain it.
func (t *Tool) checkCredential(c *validation, s document.Location) {
	cr := t.Credential
	if cr == nil {
		return
	}
	web := t.Type == "function" && slices.Contains(webHandlers, t.Handler)
	switch {
	case t.Type == "function" && !web:
		c.addProblem(s, "belongs to handler "+strings.Join(webHandlers, ", ")+" only: no other function sends requests")
	case t.Type == "mcp" && (t.Command != "" || t.Transport == "stdio"):
		c.addProblem(s, "is a header of requests, and a server with a command gets none: it has env")
	case t.Type == "mcp" && c.doc.HasValue(s.Value, "url"):
		c.addProblem(s.Child("url"), "belongs to functions: an MCP server gets its credential at its own url")
	case web && !c.doc.HasValue(s.Value, "url"):
		c.addProblem(s, "needs url: the address of the server that the credential is for, and that alone gets it")
	}
	if u, err := url.Parse(cr.URL); cr.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		c.addProblem(s.Child("url"), "must be an http or https address")
	}
	name := strings.ToLower(cr.Header)
	if !headerNameForm.MatchString(name) {
		c.addProblem(s.Child("header"), "is not the name of a header")
	} else if slices.Contains(nonCredentialHeaders, name) || strings.HasPrefix(name, "mcp-") || strings.HasPrefix(name, "proxy-") {
		c.addProblem(s.Child("header"), "belongs to the protocol and cannot hold a credential")
	}
}

// checkFunction checks handler, folder and parameters of a built-in function.
func (t *Tool) checkFunction(c *validation, s document.Location) {
	files := slices.Contains(fileHandlers, t.Handler)
	switch {
	case !c.doc.HasValue(s.Value, "handler"):
		c.addProblem(s, "a function needs handler")
	case files:
		c.requireGrant(s.Child("handler"), "filesystem")
		t.checkFolder(c, s, "filesystem")
	case c.doc.HasValue(s.Value, "working_directory"):
		c.addProblem(s.Child("working_directory"), "belongs to handler "+strings.Join(fileHandlers, ", ")+" only")
	}
	if kind := t.Parameters["type"]; c.checkSchema(s.Child("parameters"), t.Parameters) && kind != nil && kind != "object" {
		c.addProblem(s.Child("parameters").Child("type"), "must be object: that is what arguments are")
	}
}

// checkCommand checks the grant, the folder and the programs of a command tool.
func (t *Tool) checkCommand(c *validation, s document.Location) {
	c.requireGrant(s.Child("type"), "command")
	t.checkFolder(c, s, "command")
	c.checkPrograms(s.Child("allowed_commands"), t.AllowedCommands)
	c.checkPrograms(s.Child("denied_commands"), t.DeniedCommands)
	if t.DenyByDefault && !c.doc.HasValue(s.Value, "allowed_commands") {
		c.addProblem(s.Child("deny_by_default"), "lets nothing run without allowed_commands")
	}
}

// checkFolder checks that a tenant with the grant names a folder below it: the default is the server's own.
func (t *Tool) checkFolder(c *validation, s document.Location, grant string) {
	if c.Tenant && c.isGranted(grant) && !c.doc.HasValue(s.Value, "working_directory") {
		c.addProblem(s, "working_directory is needed: an app names the folder of the host that it was given")
		return
	}
	c.requireGrantedPath(s.Child("working_directory"), grant, t.WorkingDirectory)
}

// checkPrograms checks that each item of the list at s is a program's name or absolute path.
func (val *validation) checkPrograms(s document.Location, list []string) {
	for i, name := range list {
		if name == "" || strings.ContainsAny(name, " \t\n") || strings.Contains(name, "/") && !strings.HasPrefix(name, "/") {
			val.addProblem(s.Item(i), "must be the name of a program or an absolute path, without arguments")
		}
	}
}

// checkMCPServer checks that an MCP server has either an address or a command, with the keys and the grant that
// belong to it.
func (t *Tool) checkMCPServer(c *validation, s document.Location) {
	stdio := t.Transport == "stdio"
	switch {
	case stdio:
		c.requireGrant(s.Child("transport"), "stdio")
	case t.Command != "":
		c.requireGrant(s.Child("command"), "stdio")
	}
	switch {
	case t.URL == "" && t.Command == "" && !c.doc.HasValue(s.Value, "url"):
		c.addProblem(s, "an mcp tool needs url or command (or set type: function or command)")
	case t.URL != "" && t.Command != "":
		c.addProblem(s.Child("command"), "an mcp tool has a url or a command, not both")
	case stdio && t.URL != "":
		c.addProblem(s.Child("url"), "transport stdio starts a command and has no url")
	case t.Transport != "" && !stdio && t.Command != "":
		c.addProblem(s.Child("command"), "transport "+t.Transport+" needs a url and starts no command")
	}
	if t.URL != "" && t.Command == "" {
		for _, key := range []string{"args", "env"} {
			if c.doc.HasValue(s.Value, key) {
				c.addProblem(s.Child(key), "belongs to a server with a command")
			}
		}
	}
	if t.Command != "" && c.doc.HasValue(s.Value, "headers") {
		c.addProblem(s.Child("headers"), "belongs to a server with a url")
	}
	if strings.ContainsAny(t.Command, " \t\n") && !strings.Contains(t.Command, "/") {
		c.addProblem(s.Child("command"), "is the program alone: its arguments belong into args")
	}
	c.checkAddress(s.Child("url"), t.URL)
	c.checkHeaders(s.Child("headers"), t.Headers)
}
