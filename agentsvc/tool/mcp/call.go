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

// remoteTool is one tool of a server. It is read-only once it is part of a list.
type remoteTool struct {
	// server owns the tool; spec is what the model reads.
	server *Server
	spec   agentsvc.ToolSpec
	// definitionHash identifies the definition, see newDefinition.
	definitionHash string
	idempotent     bool
	// blocked reports that the definition is not the accepted one; calls fail.
	blocked bool
}

// Spec implements [tool.Tool].
func (r *remoteTool) Spec() agentsvc.ToolSpec { return r.spec }

// IsIdempotent implements [tool.Tool].
func (r *remoteTool) IsIdempotent() bool { return r.idempotent }

// Call implements [tool.Tool]. With caller credentials it runs on the caller's own connection, and the credential is
// removed from everything that the server returns.
func (r *remoteTool) Call(ctx context.Context, in tool.Call) (string, error) {
	if r.blocked {
		return "", errBlocked
	}
	if r.server.options.Credential == nil {
		return r.server.shared.callTool(ctx, r, in)
	}
	var text string
	err := r.server.withCallerConnector(ctx, in.Session, func(l *connector, g *tool.CallerCredential) (err error) {
		text, err = l.callTool(ctx, r, in)
		if text = g.RedactText(text); err != nil && g.RedactText(err.Error()) != err.Error() {
			err = errors.New(g.RedactText(err.Error()))
		}
		return err
	})
	return text, err
}

// errBlocked is the error of a blocked tool, for the model.
var errBlocked = errors.New("the tool is blocked: its definition on the server has changed, and no operator has accepted the change yet")

// markBlocked blocks the tool and removes its description and parameters: a changed description may be an attempt to
// manipulate the model, and must not reach it.
func (r *remoteTool) markBlocked() {
	r.blocked = true
	r.spec.Description = "Blocked until an operator accepts what its server changed. Do not call it."
	r.spec.Parameters = nil
}

// isSame reports whether other has the same definition and state, so that one value can replace the other.
func (r *remoteTool) isSame(other *remoteTool) bool {
	return r.definitionHash == other.definitionHash && r.blocked == other.blocked && r.idempotent == other.idempotent
}

// idempotencyKeyField is the key in a call's _meta that carries its step, which is the same for each repetition.
const idempotencyKeyField = "idempotencyKey"

// callTool runs a tool. A call that the server did not run because it had forgotten the session is repeated once in a
// new session. No other call is repeated, since its effect may have taken place.
func (con *connector) callTool(ctx context.Context, r *remoteTool, in tool.Call) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The call ends with the connector too.
	defer context.AfterFunc(con.ctx, cancel)()
	for again := false; ; again = true {
		c, err := con.ensureConnection(ctx)
		if err != nil {
			return "", con.wrapUnavailable(ctx, err)
		}
		if err := con.checkOffered(ctx, c, r); err != nil {
			return "", err
		}
		seen := &httpExchange{}
		// The program may print again: this request expects an answer.
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
			return "", con.wrapUnavailable(ctx, ctx.Err())
		case c.exceededBound() != nil:
			return "", fmt.Errorf("its server gave no result: %s; whether the call took effect is unknown", c.exceededBound().reason)
		// The server did not run the call, so repeating it is safe.
		case seen.isSessionRefused() || errors.Is(err, mcp.ErrSessionMissing):
			con.dropConnection(c)
			if !again {
				continue
			}
		}
		refused := findRefusal(err)
		if refused == nil {
			con.dropConnection(c)
		}
		return "", con.newCallError(seen, refused, err)
	}
}

// checkOffered returns an error if the server has withdrawn the tool, or changed it without approval, since the turn
// listed its tools.
func (con *connector) checkOffered(ctx context.Context, c *connection, r *remoteTool) error {
	if c.toolsChanged.Load() {
		if err := con.refreshList(ctx, c); err != nil {
			return con.wrapUnavailable(ctx, err)
		}
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	switch now := con.currentList.byName[r.spec.Name]; {
	case now == nil:
		return errors.New("its server no longer offers it")
	case now.blocked:
		return errBlocked
	}
	return nil
}

// dropConnection abandons a connection that is lost or whose session the server has forgotten. The session is closed in
// the background, since that may take a request.
func (con *connector) dropConnection(c *connection) {
	con.wg.Go(c.close)
	con.mu.Lock()
	defer con.mu.Unlock()
	if con.conn == c {
		con.conn = nil
	}
}

// resetOutputLimit restores the output limit of the server's program before a request.
func (c *connection) resetOutputLimit() {
	if c.process != nil {
		c.process.resetOutputLimit()
	}
}

// wrapUnavailable returns the error of a call without a connection: the context's if the call ended itself.
func (con *connector) wrapUnavailable(ctx context.Context, err error) error {
	switch {
	case con.ctx.Err() == nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errUnauthorized):
		return fmt.Errorf("its server is not available: %w", errUnauthorized)
	}
	return fmt.Errorf("its server is not available: %s", describeReason(err))
}

// codeNotSent is the JSON-RPC code with which the client library reports that a request was not delivered, although the
// server is there.
const codeNotSent = -32005

// findRefusal returns the JSON-RPC error with which the server, or the library, rejected this call; nil: the connection
// failed.
func findRefusal(err error) *jsonrpc.Error {
	var refused *jsonrpc.Error
	errors.As(err, &refused)
	return refused
}

// newCallError returns the error of a call without a result, for the model. It distinguishes calls that cannot have
// taken effect (nothing was sent, or the server refused it) from those whose effect is unknown, which must not be
// repeated blindly.
func (con *connector) newCallError(seen *httpExchange, refused *jsonrpc.Error, err error) error {
	// No request left this process: the call cannot have taken effect.
	if reason := seen.unsentFailure(); reason != nil {
		return fmt.Errorf("its server is not available: %w", reason)
	}
	reason := seen.lastFailure()
	if con.credential != nil && errors.Is(reason, errUnauthorized) {
		return reason
	}
	if refused != nil && (refused.Code != codeNotSent || reason == nil) {
		return fmt.Errorf("its server refused the call: %s", clipText(refused.Message, 4<<10))
	}
	if reason == nil {
		reason = errConnectionLost
	}
	con.options.Logger.Debug("a call of an MCP tool was lost", "tool", con.options.Name, "error", con.credential.RedactText(err.Error()))
	return fmt.Errorf("its server gave no result: %w; whether the call took effect is unknown", reason)
}
