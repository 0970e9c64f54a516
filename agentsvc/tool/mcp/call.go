package mcp

import (
	"context"
	"errors"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// remote is one of the server's tools.
type remote struct {
	server     *Server
	spec       agentsvc.ToolSpec
	hash       string // of the definition
	idempotent bool
	blocked    bool
}

// Spec implements [tool.Tool].
func (r *remote) Spec() agentsvc.ToolSpec { return r.spec }

// Idempotent implements [tool.Tool].
func (r *remote) Idempotent() bool { return r.idempotent }

// Call implements [tool.Tool].
func (r *remote) Call(ctx context.Context, in tool.Input) (string, error) {
	if r.blocked {
		return "", errBlocked
	}
	if r.server.o.Credential == nil {
		return r.server.shared.call(ctx, r, in)
	}
	var text string
	err := r.server.asCaller(ctx, func(l *line, g *tool.Grant) (err error) {
		text, err = l.call(ctx, r, in)
		if text = g.Hide(text); err != nil && g.Hide(err.Error()) != err.Error() {
			err = errors.New(g.Hide(err.Error()))
		}
		return err
	})
	return text, err
}

var errBlocked = errors.New("the tool is blocked: the server describes it otherwise than before, and no operator has accepted that yet")

// block leaves of the tool its name alone: what the server now says of it reaches no model.
func (r *remote) block() {
	r.blocked = true
	r.spec.Description = "Blocked until an operator accepts what its server changed. Do not call it."
	r.spec.Parameters = nil
}

// same reports whether other is the same tool of the same definition.
func (r *remote) same(other *remote) bool {
	return r.hash == other.hash && r.blocked == other.blocked && r.idempotent == other.idempotent
}

// idempotencyKey is the field of a call's _meta that holds its step: the same each time the call is repeated.
const idempotencyKey = "idempotencyKey"

// call runs a tool. A call that the server did not run because it had forgotten the session is repeated once, in a new
// session. No other is.
func (l *line) call(ctx context.Context, r *remote, in tool.Input) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	for again := false; ; again = true {
		c, err := l.connection(ctx)
		if err != nil {
			return "", l.away(ctx, err)
		}
		if err := l.still(ctx, c, r); err != nil {
			return "", err
		}
		seen := &exchange{}
		c.asked()
		params := &mcp.CallToolParams{Name: r.spec.Name, Arguments: in.Arguments}
		if in.Step != "" {
			params.Meta = mcp.Meta{idempotencyKey: in.Step}
		}
		res, err := c.session.CallTool(context.WithValue(ctx, exchangeKey{}, seen), params)
		switch {
		case err == nil:
			return text(res)
		case ctx.Err() != nil:
			return "", l.away(ctx, ctx.Err())
		case seen.sessionRefused() || errors.Is(err, mcp.ErrSessionMissing):
			l.drop(c)
			if !again {
				continue
			}
		}
		refused := refusal(err)
		if refused == nil {
			l.drop(c)
		}
		return "", l.failed(seen, refused, err)
	}
}

// still reports an error if the server has changed or withdrawn a tool since the turn began.
func (l *line) still(ctx context.Context, c *connection, r *remote) error {
	if c.changed.Load() {
		if _, err := l.refresh(ctx, c); err != nil {
			return l.away(ctx, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch now := l.known.byName[r.spec.Name]; {
	case now == nil:
		return errors.New("its server has it no longer")
	case now.blocked:
		return errBlocked
	}
	return nil
}

// drop gives up a connection that is lost, or whose session the server has forgotten.
func (l *line) drop(c *connection) {
	l.work.Go(func() { _ = c.session.Close() })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == c {
		l.conn = nil
	}
}

// asked tells the connection that what comes now was asked for.
func (c *connection) asked() {
	if c.process != nil {
		c.process.asked()
	}
}

// away says that a call was not made, or not heard of again.
func (l *line) away(ctx context.Context, err error) error {
	switch {
	case l.ctx.Err() == nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errUnauthorized):
		return fmt.Errorf("its server is not available: %w", errUnauthorized)
	}
	return fmt.Errorf("its server is not available: %s", reason(err))
}

// notSent is the code by which the client library says that a request did not get through to a server which is there.
const notSent = -32005

// refusal returns the error by which a server, or the way to it, rejected one call and no more.
func refusal(err error) *jsonrpc.Error {
	var refused *jsonrpc.Error
	errors.As(err, &refused)
	return refused
}

// failed says what became of a call without a result.
func (l *line) failed(seen *exchange, refused *jsonrpc.Error, err error) error {
	if why := seen.unsent(); why != nil {
		return fmt.Errorf("its server is not available: %w", why)
	}
	why := seen.failure()
	if l.grant != nil && errors.Is(why, errUnauthorized) {
		return why
	}
	if refused != nil && (refused.Code != notSent || why == nil) {
		return fmt.Errorf("its server refused the call: %s", clip(refused.Message, 4<<10))
	}
	if why == nil {
		why = errLost
	}
	l.o.Logger.Debug("a call of an MCP tool was lost", "tool", l.o.Name, "error", l.grant.Hide(err.Error()))
	return fmt.Errorf("its server gave no result: %w; whether the call took effect is unknown", why)
}
