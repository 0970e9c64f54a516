// Package function contains the built-in tools, which need neither a process nor a server of their own. builtins names
// them; [New] builds one with its [Options]. Each tool is a file: its description and JSON Schema for the model, and
// its Call. Tools with files use a confinedFolder, tools with HTTP a credentialClient.
package function

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
	"stoa/tenancy/grant"
)

// Options configure a built-in tool. Empty fields keep the tool's defaults.
type Options struct {
	// App is the app whose share of the processors the tool uses, see package processor.
	App string
	// Name is the name that the model calls, "" = that of the built-in.
	Name string
	// Description and Parameters (a JSON Schema) replace what the model reads. The arguments are checked against the
	// tool's own types all the same.
	Description string
	Parameters  json.RawMessage
	// HTTP is the client of http_request and web_fetch; it must enforce the egress rules, see package egress.
	HTTP *http.Client
	// MaxBody bounds a body that http_request or web_fetch sends or returns, in bytes, 0 = 256 KiB.
	MaxBody int64
	// Credential is the caller's credential for http_request and web_fetch; nil: none.
	Credential *tool.CredentialProvider
	// Folder is the folder that read_file, write_file and search_files are confined to.
	Folder string
	// Root is the folder below which Folder must be, also after symbolic links are resolved; "" = anywhere.
	Root string
	// Guard knows the server's own files, which no tool reads or writes; nil: there are none.
	Guard *grant.Guard
}

// builtins are the constructors of the built-in tools, by name.
var builtins = map[string]func(Options) (tool.Tool, error){
	"current_time": newCurrentTime,
	"calculator":   newCalculator,
	"http_request": newHTTPRequest,
	"read_file":    newReadFile,
	"search_files": newSearchFiles,
	"todo":         newTodo,
	"web_fetch":    newWebFetch,
	"write_file":   newWriteFile,
}

// NeedsFolder reports whether the built-in needs Options.Folder.
func NeedsFolder(handler string) bool {
	return slices.Contains([]string{"read_file", "search_files", "write_file"}, handler)
}

// HandlerNames returns the names of the built-ins, sorted.
func HandlerNames() []string { return slices.Sorted(maps.Keys(builtins)) }

// New returns the built-in with this name, or an error with [agentsvc.CodeInvalid] if there is none.
func New(handler string, opts Options) (tool.Tool, error) {
	build, ok := builtins[handler]
	if !ok {
		return nil, agentsvc.NewInvalidError("handler", "%q is no built-in function; there are %s", handler, strings.Join(HandlerNames(), ", "))
	}
	if opts.Name == "" {
		opts.Name = handler
	}
	return build(opts)
}

// toolSpec returns the description of a tool with o's replacements.
func (o Options) toolSpec(description, parameters string) agentsvc.ToolSpec {
	s := agentsvc.ToolSpec{Name: o.Name, Description: description, Parameters: json.RawMessage(parameters)}
	if o.Description != "" {
		s.Description = o.Description
	}
	if len(o.Parameters) > 0 {
		s.Parameters = o.Parameters
	}
	return s
}

// bodyLimit returns MaxBody or its default.
func (o Options) bodyLimit() int64 {
	if o.MaxBody <= 0 {
		return 256 << 10
	}
	return o.MaxBody
}

// decodeArguments decodes the arguments into v. They fit the schema that the model was given, but that may be the
// tenant's own, so the types are checked again.
func decodeArguments(in tool.Call, v any) error {
	err := json.Unmarshal(in.Arguments, v)
	var typed *json.UnmarshalTypeError
	// The error names the field, so that the model corrects it.
	if errors.As(err, &typed) {
		return agentsvc.NewInvalidError(typed.Field, "must be a %s, not a %s", typed.Type, typed.Value)
	}
	return err
}
