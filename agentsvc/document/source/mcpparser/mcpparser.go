// Package mcpparser reads documents by tools of MCP servers: what a program beyond Stoa makes of a scan, a drawing or a
// rare format. [New] makes a [ParseFunc] from the tools that mcp_parsers names.
//
// A tool receives the document by the parameters that its schema names:
//
//	content_base64   the bytes
//	uri, source      a data: address with the bytes, as converters of documents to Markdown take it
//	path, file_path  the path of a file with the bytes, for a server on this machine, if [Options.Folder] is set
//
// The first of these that it has is used. With it go name (or filename), the document's id, and media_type (or mime_type),
// where the tool has them. A tool with none of them, or with other required parameters, cannot read documents.
//
// The result is Markdown or plain text, or a JSON object with it in markdown, text or content. Headings (#) become the
// places of the sections. What a tool answers is data, like any document's content.
package mcpparser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document"
	"stoa/agentsvc/document/source"
	"stoa/agentsvc/tool"
)

// Bounds of a call.
const (
	// maxBodyBytes bounds a document that is sent to a tool.
	maxBodyBytes = 20 << 20
	// maxTextBytes bounds a result.
	maxTextBytes = 16 << 20
	callTimeout  = 5 * time.Minute
)

// ParseFunc reads a document. name is its id in the store. An error is a [*source.Error].
type ParseFunc func(ctx context.Context, name, mediaType string, body []byte) (document.Content, error)

// Options configure the parsers of a store.
type Options struct {
	// Tools are the tools of Config.ToolNames, in this order.
	Tools []tool.Tool
	// Config says which documents are read; see [Handles].
	Config *config.MCPParsers
	// Folder is a private folder for the files of tools that take a path; "" = such tools are refused. It must be set only
	// if the servers of the tools run on this machine.
	Folder string
	// Scope is the scope of calls outside of a run.
	Scope agentsvc.RunScope
}

// Handles reports whether the tools read a document with this name, by its ending.
func Handles(c *config.MCPParsers, name string) bool {
	return c != nil && (len(c.Extensions) == 0 || slices.ContainsFunc(c.Extensions, func(extension string) bool {
		return strings.HasSuffix(strings.ToLower(name), strings.ToLower(extension))
	}))
}

// parser reads documents by one tool.
type parser struct {
	tool   tool.Tool
	schema schema
	folder string
	scope  agentsvc.RunScope
}

// schema is what of a tool's parameters matters.
type schema struct {
	content, name, mediaType string // names of parameters; "" = the tool has none
}

// New returns the function that reads documents by the tools. They are tried in their order until one reads the document;
// the error is that of the last. It returns an error if one of them takes no documents.
func New(opts Options) (ParseFunc, error) {
	if len(opts.Tools) == 0 {
		return nil, source.PermanentErrorf("mcp_parsers names no tool")
	}
	var parsers []parser
	for _, t := range opts.Tools {
		s, err := readSchema(t.Spec(), opts.Folder != "")
		if err != nil {
			return nil, err
		}
		parsers = append(parsers, parser{tool: t, schema: s, folder: opts.Folder, scope: opts.Scope})
	}
	return func(ctx context.Context, name, mediaType string, body []byte) (content document.Content, err error) {
		if len(body) > maxBodyBytes {
			return document.Content{}, source.PermanentErrorf("the document has %d bytes; a tool reads at most %d", len(body), maxBodyBytes)
		}
		for _, p := range parsers {
			if content, err = p.parse(ctx, name, mediaType, body); err == nil || ctx.Err() != nil {
				break
			}
		}
		return content, err
	}, nil
}

// The parameters by which tools take a document, in the order of preference.
var (
	contentParameters   = []string{"content_base64", "uri", "source", "path", "file_path"}
	nameParameters      = []string{"name", "filename"}
	mediaTypeParameters = []string{"media_type", "mime_type"}
)

// readSchema finds the parameters of a tool.
func readSchema(spec agentsvc.ToolSpec, paths bool) (schema, error) {
	var parameters struct {
		Properties map[string]any `json:"properties"`
		Required   []string       `json:"required"`
	}
	_ = json.Unmarshal(spec.Parameters, &parameters) // a tool without a schema has no parameters
	first := func(names []string) string {
		for _, name := range names {
			if _, ok := parameters.Properties[name]; ok {
				return name
			}
		}
		return ""
	}
	s := schema{first(contentParameters), first(nameParameters), first(mediaTypeParameters)}
	switch {
	case s.content == "":
		return s, source.PermanentErrorf("the tool %s takes no document: it has none of the parameters %s", spec.Name, strings.Join(contentParameters, ", "))
	case s.takesPath() && !paths:
		return s, source.PermanentErrorf("the tool %s takes the path of a file only, which its server cannot read", spec.Name)
	}
	for _, name := range parameters.Required {
		if name != s.content && name != s.name && name != s.mediaType {
			return s, source.PermanentErrorf("the tool %s demands the parameter %s, which is unknown here", spec.Name, name)
		}
	}
	return s, nil
}

// takesPath reports whether the tool reads a file.
func (s schema) takesPath() bool { return s.content == "path" || s.content == "file_path" }

// parse reads a document.
func (p *parser) parse(ctx context.Context, name, mediaType string, body []byte) (document.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if mediaType == "" {
		mediaType = "application/octet-stream"
	}
	var value string
	switch p.schema.content {
	case "content_base64":
		value = base64.StdEncoding.EncodeToString(body)
	case "uri", "source":
		value = "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(body)
	default:
		file, remove, err := p.writeFile(name, body)
		if err != nil {
			return document.Content{}, source.Errorf("the document could not be handed to the tool %s", p.tool.Spec().Name)
		}
		defer remove()
		value = file
	}
	arguments := map[string]string{p.schema.content: value}
	if p.schema.name != "" {
		arguments[p.schema.name] = name
	}
	if p.schema.mediaType != "" {
		arguments[p.schema.mediaType] = mediaType
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		return document.Content{}, source.PermanentErrorf("the document could not be handed to the tool %s", p.tool.Spec().Name)
	}
	text, err := p.tool.Call(ctx, tool.Call{RunScope: p.scope, Arguments: raw})
	if err != nil {
		return document.Content{}, p.describeError(ctx, err)
	}
	return p.newContent(text)
}

// describeError returns the error of a call. The tool's own text is not used: it may hold what the document says.
func (p *parser) describeError(ctx context.Context, err error) error {
	name := p.tool.Spec().Name
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return source.Errorf("the tool %s did not answer in time", name)
	case ctx.Err() != nil:
		return source.Errorf("the call of the tool %s was cancelled", name)
	case errors.As(err, new(*tool.CredentialError)):
		return source.PermanentErrorf("the tool %s demands a credential of its caller, which indexing has none of", name)
	}
	return source.Errorf("the tool %s could not read the document", name)
}

// writeFile writes the document into a folder of its own and returns its path. The ending of the name is kept: tools
// recognise formats by it.
func (p *parser) writeFile(name string, body []byte) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp(p.folder, "document-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	ending := path.Ext(name)
	if len(ending) > 16 || strings.ContainsFunc(ending, func(r rune) bool { return r != '.' && (r < '0' || r > 'z') }) {
		ending = ""
	}
	file = filepath.Join(dir, "document"+ending)
	if err := os.WriteFile(file, body, 0o600); err != nil {
		remove()
		return "", nil, err
	}
	return file, remove, nil
}

// newContent returns the content for the text of a result.
func (p *parser) newContent(text string) (document.Content, error) {
	name := p.tool.Spec().Name
	// Half a document must not pass for the whole.
	if len(text) > maxTextBytes || strings.HasSuffix(text, tool.TruncationMark) {
		return document.Content{}, source.PermanentErrorf("the tool %s made more text of the document than a tool may answer with", name)
	}
	text = strings.ToValidUTF8(unwrap(text), "\ufffd")
	text = strings.ReplaceAll(text, "\x00", "")
	if strings.TrimSpace(text) == "" {
		return document.Content{}, source.PermanentErrorf("the tool %s found no text in the document", name)
	}
	sections, ok := splitSections(text)
	if !ok {
		return document.Content{}, source.PermanentErrorf("the tool %s made more than %d sections of the document: split it", name, maxSections)
	}
	content := document.Content{MediaType: "text/markdown", Sections: sections}
	if first := content.Sections[0]; strings.HasPrefix(first.Text, "# ") {
		content.Title = first.Place.Heading
	}
	return content, nil
}

// unwrap returns the text in a result that is a JSON object, else the result.
func unwrap(text string) string {
	var object struct{ Markdown, Text, Content *string }
	if trimmed := strings.TrimSpace(text); !strings.HasPrefix(trimmed, "{") || json.Unmarshal([]byte(trimmed), &object) != nil {
		return text
	}
	for _, found := range []*string{object.Markdown, object.Text, object.Content} {
		if found != nil {
			return *found
		}
	}
	return text
}
