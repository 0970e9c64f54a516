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

// list is the server's tools as they were last told.
type list struct {
	conn    *connection
	at      time.Time
	tools   []tool.Tool
	byName  map[string]*remote
	blocked bool // at least one waits for an operator
}

// refresh returns the list, which it asks for where there is none of this connection, the server said that it is
// another one now, it is old, or an operator may have accepted a tool since. A list that cannot be had leaves the one
// before.
func (l *line) refresh(ctx context.Context, c *connection) (*list, error) {
	l.listing.Lock()
	defer l.listing.Unlock()
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	changed := c.changed.Swap(false)
	if known != nil && known.conn == c && !changed && !known.blocked && time.Since(known.at) < listAge {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.o.Connect)
	defer cancel()
	seen := &exchange{}
	fresh, err := l.ask(context.WithValue(ctx, exchangeKey{}, seen), c)
	if err != nil {
		c.changed.Store(changed)
		if errors.Is(seen.failure(), errUnauthorized) {
			err = &unreachable{why: errUnauthorized.Error(), cause: errUnauthorized}
		}
		return known, err
	}
	l.mu.Lock()
	l.known = fresh
	l.mu.Unlock()
	return fresh, nil
}

// ask takes in what the server says. Tools that are as before, on whichever line, remain the same values. One that repeats
// the credential it is asked with is left out.
func (l *line) ask(ctx context.Context, c *connection) (*list, error) {
	s := l.Server
	told, err := s.tell(ctx, c)
	if err != nil {
		return nil, err
	}
	fresh := &list{conn: c, at: time.Now(), byName: make(map[string]*remote, len(told))}
	var defs []store.Definition
	for _, t := range told {
		def, why := s.define(t)
		if l.grant.Hide(def.Body) != def.Body {
			why = "it repeats a caller's credential"
		}
		if why != "" {
			s.o.Logger.WarnContext(ctx, "a tool is left out", "source", s.Name(), "tool", clip(l.grant.Hide(t.Name), 64), "reason", why)
			continue
		}
		defs = append(defs, def)
		fresh.byName[t.Name] = s.remote(t, def)
	}
	if err := s.settle(ctx, fresh, defs); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, def := range defs {
		now := fresh.byName[def.Tool]
		if s.last != nil {
			if old := s.last.byName[def.Tool]; old != nil && old.same(now) {
				now = old
			}
		}
		fresh.byName[def.Tool] = now
		fresh.tools = append(fresh.tools, now)
		fresh.blocked = fresh.blocked || now.blocked
	}
	for name := range s.filter {
		if fresh.byName[name] == nil {
			s.o.Logger.WarnContext(ctx, "the filter names a tool that the server does not have", "source", s.Name(), "tool", name)
		}
	}
	s.last = fresh
	return fresh, nil
}

// tell asks for the tools that pass the filter, the first of each name.
func (s *Server) tell(ctx context.Context, c *connection) ([]*mcp.Tool, error) {
	c.asked()
	var told []*mcp.Tool
	seen := map[string]bool{}
	n := 0
	for t, err := range c.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		if n++; n > maxTools {
			return nil, &unreachable{why: fmt.Sprintf("it has more than %d tools", maxTools)}
		}
		if seen[t.Name] || s.filter != nil && !s.filter[t.Name] {
			continue
		}
		seen[t.Name] = true
		told = append(told, t)
	}
	return told, nil
}

// define returns what is pinned of a tool: all that a model is told of it. Where the tool cannot be had, it says why.
func (s *Server) define(t *mcp.Tool) (def store.Definition, why string) {
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
	return store.Definition{Tool: t.Name, Hash: hex.EncodeToString(sum[:]), Body: string(body)}, ""
}

// remote makes a tool of what the server said of it.
func (s *Server) remote(t *mcp.Tool, def store.Definition) *remote {
	schema, _ := json.Marshal(t.InputSchema) // as define did
	text := t.Description
	if s.o.Description != "" {
		text = strings.TrimSpace(s.o.Description + "\n\n" + text)
	}
	r := &remote{server: s, hash: def.Hash, spec: agentsvc.ToolSpec{Name: t.Name, Description: text, Parameters: schema}}
	if t.Annotations != nil {
		r.idempotent = t.Annotations.ReadOnlyHint // of all hints the one that costs little if it is a lie
	}
	return r
}

// settle holds the definitions against the pins and blocks those that have changed.
func (s *Server) settle(ctx context.Context, l *list, defs []store.Definition) error {
	if s.o.Pins == nil {
		return nil
	}
	drifted, err := s.o.Pins.SettlePins(ctx, s.o.Name, defs)
	if err != nil {
		return &unreachable{why: "what is pinned of its tools cannot be read", cause: err}
	}
	for _, name := range slices.Sorted(slices.Values(drifted)) {
		l.byName[name].block()
		s.o.Logger.WarnContext(ctx, "a tool is blocked: its definition is not the accepted one", "source", s.Name(), "tool", name)
	}
	return nil
}

// clip shortens text for a log.
func clip(text string, n int) string {
	if len(text) > n {
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "")
}
