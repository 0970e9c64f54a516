package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/store/toolpin"
	"stoa/agentsvc/tool"
)

// toolList is the list of a server's tools at one time. It is read-only once published.
type toolList struct {
	// conn is the connection that listed them: a new connection lists again.
	conn     *connection
	loadedAt time.Time
	tools    []tool.Tool
	byName   map[string]*remoteTool
	// hasBlocked reports that a tool waits for an operator. Then each turn asks again, since the operator may have
	// accepted it.
	hasBlocked bool
}

// refreshList brings the known list of tools up to date. It asks the server if there is no list of this connection, the
// server notified a change, the list is older than maxListAge, or a tool is blocked. On an error the known list stays.
func (con *connector) refreshList(ctx context.Context, c *connection) error {
	con.listMu.Lock()
	defer con.listMu.Unlock()
	known := con.knownList()
	// Cleared before the request: a notification that arrives during it must cause another one.
	changed := c.toolsChanged.Swap(false)
	if known != nil && known.conn == c && !changed && !known.hasBlocked && time.Since(known.loadedAt) < maxListAge {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, con.options.ConnectTimeout)
	defer cancel()
	seen := &httpExchange{}
	fresh, err := con.loadList(context.WithValue(ctx, exchangeKey{}, seen), c)
	if err != nil {
		// The notification is still unanswered. Another one may have arrived meanwhile: false is never stored.
		if changed {
			c.toolsChanged.Store(true)
		}
		// The library's error does not contain the status, which decides whether the caller is asked for a credential.
		if errors.Is(seen.lastFailure(), errUnauthorized) {
			err = &unavailableError{reason: errUnauthorized.Error(), cause: errUnauthorized}
		}
		if bound := c.exceededBound(); bound != nil {
			err = bound
		}
		return err
	}
	con.mu.Lock()
	con.currentList = fresh
	con.mu.Unlock()
	return nil
}

// loadList lists the tools and checks them against the pins. Unchanged tools, of any connector, remain the same values
// (see [tool.Source]). A tool whose definition contains the caller's credential is left out.
func (con *connector) loadList(ctx context.Context, c *connection) (*toolList, error) {
	s := con.Server
	listed, err := s.fetchTools(ctx, c)
	if err != nil {
		return nil, err
	}
	fresh := &toolList{conn: c, loadedAt: time.Now(), byName: make(map[string]*remoteTool, len(listed))}
	var defs []toolpin.Definition
	var cost pattern.SchemaCost // of the schemas so far
	for _, t := range listed {
		def, reason := s.newDefinition(t)
		if reason == "" && !addSchemaCost(&cost, t.InputSchema) {
			reason = "the schemas of its server's tools are too large together"
		}
		// The definition would be pinned and shown to other callers.
		if con.credential.RedactText(def.Body) != def.Body {
			reason = "it repeats a caller's credential"
		}
		if reason != "" {
			s.options.Logger.WarnContext(ctx, "a tool is left out", "source", s.Name(), "tool", clipText(con.credential.RedactText(t.Name), 64), "reason", reason)
			continue
		}
		defs = append(defs, def)
		fresh.byName[t.Name] = s.newRemoteTool(t, def)
	}
	if err := s.applyPins(ctx, fresh, defs); err != nil {
		return nil, err
	}
	// From here on lastList is read and replaced in one critical section: two connectors may list at the same time.
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, def := range defs {
		now := fresh.byName[def.Tool]
		if s.lastList != nil {
			if old := s.lastList.byName[def.Tool]; old != nil && old.isSame(now) {
				now = old
			}
		}
		fresh.byName[def.Tool] = now
		fresh.tools = append(fresh.tools, now)
		fresh.hasBlocked = fresh.hasBlocked || now.blocked
	}
	// A misspelt filter would otherwise go unnoticed.
	for name := range s.filter {
		if fresh.byName[name] == nil {
			s.options.Logger.WarnContext(ctx, "the filter names a tool that the server does not have", "source", s.Name(), "tool", name)
		}
	}
	s.lastList = fresh
	return fresh, nil
}

// fetchTools requests the tools and returns those that pass the filter, the first of each name. More than maxTools, or
// maxListPages, fail the listing.
func (s *Server) fetchTools(ctx context.Context, c *connection) ([]*mcp.Tool, error) {
	c.resetOutputLimit()
	var listed []*mcp.Tool
	seen := map[string]bool{}
	n := 0
	params := &mcp.ListToolsParams{}
	for range maxListPages {
		page, err := c.session.ListTools(ctx, params)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tools {
			if n++; n > maxTools {
				return nil, &unavailableError{reason: fmt.Sprintf("it has more than %d tools", maxTools)}
			}
			if t == nil || seen[t.Name] || s.filter != nil && !s.filter[t.Name] {
				continue
			}
			seen[t.Name] = true
			listed = append(listed, t)
		}
		if page.NextCursor == "" {
			return listed, nil
		}
		params.Cursor = page.NextCursor
	}
	return nil, &unavailableError{reason: fmt.Sprintf("its list of tools has more than %d pages", maxListPages)}
}

// addSchemaCost adds the cost of a tool's schema to total, unless the sum would exceed the bound of a server's list; it
// reports whether it did. A server of a tenant's could otherwise answer with 8 MiB whose schemas take gigabytes.
func addSchemaCost(total *pattern.SchemaCost, schema any) bool {
	c := pattern.MeasureSchema(schema)
	if total.Parts+c.Parts > maxListParts || total.Instructions+c.Instructions > maxListInstructions {
		return false
	}
	total.Parts += c.Parts
	total.Instructions += c.Instructions
	return true
}

// newDefinition returns the part of a tool that is pinned, i.e. everything that a model reads of it, with its hash. If
// the tool cannot be offered, reason says why.
func (s *Server) newDefinition(t *mcp.Tool) (def toolpin.Definition, reason string) {
	schema, err := json.Marshal(t.InputSchema)
	switch {
	case err != nil:
		return def, "its schema is no JSON"
	case len(schema) > maxSchema:
		return def, fmt.Sprintf("its schema is longer than %d bytes", maxSchema)
	case len(t.Description) > maxDescription:
		return def, fmt.Sprintf("its description is longer than %d bytes", maxDescription)
	// A NUL or invalid UTF-8 cannot be stored in PostgreSQL.
	case !utf8.ValidString(t.Name) || !utf8.ValidString(t.Description) || strings.ContainsRune(t.Name+t.Description, 0):
		return def, "its name or description is not valid text"
	}
	body, err := json.Marshal(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
	}{t.Name, t.Description, schema})
	if err != nil {
		return def, "its schema is no JSON"
	}
	// The hash covers name, description and schema: a change of any of them blocks the tool.
	sum := sha256.Sum256(body)
	return toolpin.Definition{Tool: t.Name, Hash: hex.EncodeToString(sum[:]), Body: string(body)}, ""
}

// newRemoteTool returns the tool for a listed definition.
func (s *Server) newRemoteTool(t *mcp.Tool, def toolpin.Definition) *remoteTool {
	schema, _ := json.Marshal(t.InputSchema) // cannot fail: newDefinition has encoded it
	// The operator's description comes first and is not part of the hash: changing it blocks nothing.
	text := t.Description
	if s.options.Description != "" {
		text = strings.TrimSpace(s.options.Description + "\n\n" + text)
	}
	r := &remoteTool{server: s, definitionHash: def.Hash, spec: agentsvc.ToolSpec{Name: t.Name, Description: text, Parameters: schema}}
	if t.Annotations != nil {
		// Hints are claims of an untrusted server. This one is used because a false claim costs little: the call is
		// repeated after a crash.
		r.idempotent = t.Annotations.ReadOnlyHint
	}
	return r
}

// applyPins stores the definitions that are new and blocks tools whose definition is not the stored one.
func (s *Server) applyPins(ctx context.Context, l *toolList, defs []toolpin.Definition) error {
	if s.options.Pins == nil {
		return nil
	}
	// Update stores new definitions and returns the names of those that differ from the stored ones.
	drifted, err := s.options.Pins.Update(ctx, s.options.Name, defs)
	if err != nil {
		return &unavailableError{reason: "the accepted definitions of its tools cannot be read", cause: err}
	}
	for _, name := range slices.Sorted(slices.Values(drifted)) {
		l.byName[name].markBlocked()
		s.options.Logger.WarnContext(ctx, "a tool is blocked: its definition is not the accepted one", "source", s.Name(), "tool", name)
	}
	return nil
}

// clipText returns at most n bytes of text, as valid UTF-8.
func clipText(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "")
}
