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

// remoteTool is one of the server's tools.
type remoteTool struct {
	server         *Server
	spec           agentsvc.ToolSpec
	definitionHash string // of the definition
	idempotent     bool
	blocked        bool
}

// Spec implements [tool.Tool].
func (r *remoteTool) Spec() agentsvc.ToolSpec { return r.spec }

// IsIdempotent implements [tool.Tool].
func (r *remoteTool) IsIdempotent() bool { return r.idempotent }

// Call implements [tool.Tool].
func (r *remoteTool) Call(ctx context.Context, in tool.Input) (string, error) {
	if r.blocked {
		return "", errBlocked
	}
	if r.server.options.Credential == nil {
		return r.server.shared.callTool(ctx, r, in)
	}
	var text string
	err := r.server.withCallerConnector(ctx, func(l *connector, g *tool.CallerCredential) (err error) {
		text, err = l.callTool(ctx, r, in)
		if text = g.RedactText(text); err != nil && g.RedactText(err.Error()) != err.Error() {
			err = errors.New(g.RedactText(err.Error()))
		}
		return err
	})
	return text, err
}

var errBlocked = errors.New("the tool is blocked: the server describes it otherwise than before, and no operator has accepted that yet")

// markBlocked leaves of the tool its name alone: what the server now says of it reaches no model.
func (r *remoteTool) markBlocked() {
	r.blocked = true
	r.spec.Description = "Blocked until an operator accepts what its server changed. Do not call it."
	r.spec.Parameters = nil
}

// isSame reports whether other is the same tool of the same definition.
func (r *remoteTool) isSame(other *remoteTool) bool {
	return r.definitionHash == other.definitionHash && r.blocked == other.blocked && r.idempotent == other.idempotent
}

// idempotencyKeyField is the field of a call's _meta that holds its step: the same each time the call is repeated.
const idempotencyKeyField = "idempotencyKey"

// callTool runs a tool. A call that the server did not run because it had forgotten the session is repeated once, in a new
// session. No other is.
func (l *connector) callTool(ctx context.Context, r *remoteTool, in tool.Input) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	for again := false; ; again = true {
		c, err := l.ensureConnection(ctx)
		if err != nil {
			return "", l.wrapUnavailable(ctx, err)
		}
		if err := l.checkOffered(ctx, c, r); err != nil {
			return "", err
		}
		seen := &httpExchange{}
		c.resetOutputLimit()
		params := &mcp.CallToolParams{Name: r.spec.Name, Arguments: in.Arguments}
		if in.Step != "" {
			params.Meta = mcp.Meta{idempotencyKeyField: in.Step}
		}
		res, err := c.session.CallTool(context.WithValue(ctx, exchangeKey{}, seen), params)
		switch {
		case err == nil:
			return formatResult(res)
		case ctx.Err() != nil:
			return "", l.wrapUnavailable(ctx, ctx.Err())
		case seen.isSessionRefused() || errors.Is(err, mcp.ErrSessionMissing):
			l.dropConnection(c)
			if !again {
				continue
			}
		}
		refused := findRefusal(err)
		if refused == nil {
			l.dropConnection(c)
		}
		return "", l.newCallError(seen, refused, err)
	}
}

// checkOffered reports an error if the server has changed or withdrawn a tool since the turn began.
func (l *connector) checkOffered(ctx context.Context, c *connection, r *remoteTool) error {
	if c.toolsChanged.Load() {
		if _, err := l.refreshList(ctx, c); err != nil {
			return l.wrapUnavailable(ctx, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch now := l.currentList.byName[r.spec.Name]; {
	case now == nil:
		return errors.New("its server has it no longer")
	case now.blocked:
		return errBlocked
	}
	return nil
}

// dropConnection gives up a connection that is lost, or whose session the server has forgotten.
func (l *connector) dropConnection(c *connection) {
	l.wg.Go(func() { _ = c.session.Close() })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == c {
		l.conn = nil
	}
}

// resetOutputLimit tells the connection that what comes now was asked for.
func (c *connection) resetOutputLimit() {
	if c.process != nil {
		c.process.resetOutputLimit()
	}
}

// wrapUnavailable says that a call was not made, or not heard of again.
func (l *connector) wrapUnavailable(ctx context.Context, err error) error {
	switch {
	case l.ctx.Err() == nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errUnauthorized):
		return fmt.Errorf("its server is not available: %w", errUnauthorized)
	}
	return fmt.Errorf("its server is not available: %s", describeReason(err))
}

// codeNotSent is the code by which the client library says that a request did not get through to a server which is there.
const codeNotSent = -32005

// findRefusal returns the error by which a server, or the way to it, rejected one call and no more.
func findRefusal(err error) *jsonrpc.Error {
	var refused *jsonrpc.Error
	errors.As(err, &refused)
	return refused
}

// newCallError says what became of a call without a result.
func (l *connector) newCallError(seen *httpExchange, refused *jsonrpc.Error, err error) error {
	if reason := seen.unsentFailure(); reason != nil {
		return fmt.Errorf("its server is not available: %w", reason)
	}
	reason := seen.lastFailure()
	if l.credential != nil && errors.Is(reason, errUnauthorized) {
		return reason
	}
	if refused != nil && (refused.Code != codeNotSent || reason == nil) {
		return fmt.Errorf("its server refused the call: %s", clipText(refused.Message, 4<<10))
	}
	if reason == nil {
		reason = errConnectionLost
	}
	l.options.Logger.Debug("a call of an MCP tool was lost", "tool", l.options.Name, "error", l.credential.RedactText(err.Error()))
	return fmt.Errorf("its server gave no result: %w; whether the call took effect is unknown", reason)
}
