// Package function holds the tools that are built in: they need no process and no server of their own. The table
// handlers names them all.
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
)

// Options adapt a built-in. Empty fields keep what the handler brings.
type Options struct {
	Name        string                   // that the model calls it by, the handler's if empty
	Description string                   // that the model reads
	Parameters  json.RawMessage          // JSON Schema that the arguments must fit
	HTTP        *http.Client             // the way out, for http_request and web_fetch; see package egress
	MaxBody     int64                    // bytes of a body that are sent or shown, for http_request and web_fetch; 256 KiB if zero
	Credential  *tool.CredentialProvider // of the caller, for http_request and web_fetch; nil = none
	Folder      string                   // that read_file, write_file and search_files are held to
	Root        string                   // the folder below which Folder must lie, without symbolic links; "" = anywhere
}

// builtins are the built-ins by name.
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

// NeedsFolder reports whether the built-in of this name is held to a folder.
func NeedsFolder(handler string) bool {
	return slices.Contains([]string{"read_file", "search_files", "write_file"}, handler)
}

// HandlerNames returns the names of the built-ins in alphabetical order.
func HandlerNames() []string { return slices.Sorted(maps.Keys(builtins)) }

// New returns the built-in of this name. It returns an [agentsvc.InvalidError] for a name that is none.
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

// toolSpec describes a built-in, with what opts say instead.
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

func (o Options) bodyLimit() int64 {
	if o.MaxBody <= 0 {
		return 256 << 10
	}
	return o.MaxBody
}

// decodeArguments reads arguments into v. The schema the model was given may be the tenant's own, so types are checked again.
func decodeArguments(in tool.Input, v any) error {
	err := json.Unmarshal(in.Arguments, v)
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) {
		return agentsvc.NewInvalidError(typed.Field, "must be a %s, not a %s", typed.Type, typed.Value)
	}
	return err
}
