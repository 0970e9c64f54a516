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
	"stoa/agentsvc/store"
	"stoa/agentsvc/tool"
)

// toolList is the server's tools as they were last told.
type toolList struct {
	conn       *connection
	loadedAt   time.Time
	tools      []tool.Tool
	byName     map[string]*remoteTool
	hasBlocked bool // at least one waits for an operator
}

// refreshList returns the list, which it asks for where there is none of this connection, the server said that it is
// another one now, it is old, or an operator may have accepted a tool since. A list that cannot be had leaves the one
// before.
func (l *connector) refreshList(ctx context.Context, c *connection) (*toolList, error) {
	l.listMu.Lock()
	defer l.listMu.Unlock()
	l.mu.Lock()
	known := l.currentList
	l.mu.Unlock()
	changed := c.toolsChanged.Swap(false)
	if known != nil && known.conn == c && !changed && !known.hasBlocked && time.Since(known.loadedAt) < maxListAge {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.options.ConnectTimeout)
	defer cancel()
	seen := &httpExchange{}
	fresh, err := l.loadList(context.WithValue(ctx, exchangeKey{}, seen), c)
	if err != nil {
		c.toolsChanged.Store(changed)
		if errors.Is(seen.lastFailure(), errUnauthorized) {
			err = &unavailableError{reason: errUnauthorized.Error(), cause: errUnauthorized}
		}
		return known, err
	}
	l.mu.Lock()
	l.currentList = fresh
	l.mu.Unlock()
	return fresh, nil
}

// loadList takes in what the server says. Tools that are as before, on whichever line, remain the same values. One that repeats
// the credential it is asked with is left out.
func (l *connector) loadList(ctx context.Context, c *connection) (*toolList, error) {
	s := l.Server
	listed, err := s.fetchTools(ctx, c)
	if err != nil {
		return nil, err
	}
	fresh := &toolList{conn: c, loadedAt: time.Now(), byName: make(map[string]*remoteTool, len(listed))}
	var defs []store.ToolDefinition
	for _, t := range listed {
		def, reason := s.newDefinition(t)
		if l.credential.RedactText(def.Body) != def.Body {
			reason = "it repeats a caller's credential"
		}
		if reason != "" {
			s.options.Logger.WarnContext(ctx, "a tool is left out", "source", s.Name(), "tool", clipText(l.credential.RedactText(t.Name), 64), "reason", reason)
			continue
		}
		defs = append(defs, def)
		fresh.byName[t.Name] = s.newRemoteTool(t, def)
	}
	if err := s.applyPins(ctx, fresh, defs); err != nil {
		return nil, err
	}
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
	for name := range s.filter {
		if fresh.byName[name] == nil {
			s.options.Logger.WarnContext(ctx, "the filter names a tool that the server does not have", "source", s.Name(), "tool", name)
		}
	}
	s.lastList = fresh
	return fresh, nil
}

// fetchTools asks for the tools that pass the filter, the first of each name.
func (s *Server) fetchTools(ctx context.Context, c *connection) ([]*mcp.Tool, error) {
	c.resetOutputLimit()
	var listed []*mcp.Tool
	seen := map[string]bool{}
	n := 0
	for t, err := range c.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if n++; n > maxTools {
			return nil, &unavailableError{reason: fmt.Sprintf("it has more than %d tools", maxTools)}
		}
		if seen[t.Name] || s.filter != nil && !s.filter[t.Name] {
			continue
		}
		seen[t.Name] = true
		listed = append(listed, t)
	}
	return listed, nil
}

// newDefinition returns what is pinned of a tool: all that a model is told of it. Where the tool cannot be had, it says why.
func (s *Server) newDefinition(t *mcp.Tool) (def store.ToolDefinition, reason string) {
	schema, err := json.Marshal(t.InputSchema)
	switch {
	case err != nil:
		return def, "its schema is no JSON"
	case len(schema) > maxSchema:
		return def, fmt.Sprintf("its schema is longer than %d bytes", maxSchema)
	case len(t.Description) > maxDescription:
		return def, fmt.Sprintf("its description is longer than %d bytes", maxDescription)
	case !utf8.ValidString(t.Name) || !utf8.ValidString(t.Description) || strings.ContainsRune(t.Name+t.Description, 0):
		return def, "it is not described in text"
	}
	body, err := json.Marshal(struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
	}{t.Name, t.Description, schema})
	if err != nil {
		return def, "its schema is no JSON"
	}
	sum := sha256.Sum256(body)
	return store.ToolDefinition{Tool: t.Name, Hash: hex.EncodeToString(sum[:]), Body: string(body)}, ""
}

// newRemoteTool makes a tool of what the server said of it.
func (s *Server) newRemoteTool(t *mcp.Tool, def store.ToolDefinition) *remoteTool {
	schema, _ := json.Marshal(t.InputSchema) // as define did
	text := t.Description
	if s.options.Description != "" {
		text = strings.TrimSpace(s.options.Description + "\n\n" + text)
	}
	r := &remoteTool{server: s, definitionHash: def.Hash, spec: agentsvc.ToolSpec{Name: t.Name, Description: text, Parameters: schema}}
	if t.Annotations != nil {
		r.idempotent = t.Annotations.ReadOnlyHint // of all hints the one that costs little if it is a lie
	}
	return r
}

// applyPins holds the definitions against the pins and blocks those that have changed.
func (s *Server) applyPins(ctx context.Context, l *toolList, defs []store.ToolDefinition) error {
	if s.options.Pins == nil {
		return nil
	}
	drifted, err := s.options.Pins.UpdatePins(ctx, s.options.Name, defs)
	if err != nil {
		return &unavailableError{reason: "what is pinned of its tools cannot be read", cause: err}
	}
	for _, name := range slices.Sorted(slices.Values(drifted)) {
		l.byName[name].markBlocked()
		s.options.Logger.WarnContext(ctx, "a tool is blocked: its definition is not the accepted one", "source", s.Name(), "tool", name)
	}
	return nil
}

// clipText shortens text for a log.
func clipText(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "")
}
