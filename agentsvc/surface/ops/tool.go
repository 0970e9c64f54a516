package ops

import (
	"context"
	"encoding/json"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
)

// handleListTools answers with the pinned definitions of the tools that MCP servers offer to an app.
func (a adminAPI) handleListTools(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	// The store of the app's ID: row-level security then limits the statement to this tenant.
	pins, err := store.New(a.db, app.ID).ListPins(r.Context())
	if err != nil {
		return err
	}
	out := make([]pinBody, len(pins))
	for i, p := range pins {
		out[i] = newPinBody(p)
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"tools": out})
}

// acceptTool accepts the changed definition of a tool and so unblocks the tool. The request names the definition by
// its hash: if the server has changed it again meanwhile, the request fails, and no operator accepts a definition that
// they have not read.
func (a adminAPI) acceptTool(ctx context.Context, o *mutation) (mutationResult, error) {
	var b acceptBody
	if err := o.decodeBody(&b, false); err != nil {
		return mutationResult{}, err
	}
	if b.Hash == "" {
		return mutationResult{}, agentsvc.NewInvalidError("hash", "is missing: it is the one that drift.hash shows")
	}
	app, err := a.apps.LoadApp(ctx, o.appName())
	if err != nil {
		return mutationResult{}, err
	}
	server, tool := surface.PathParam(o.r, "server"), surface.PathParam(o.r, "tool")
	pin, err := store.New(a.db, app.ID).AcceptPin(ctx, o.actor, server, tool, b.Hash)
	if err != nil {
		return mutationResult{}, err
	}
	return mutationResult{status: http.StatusOK, body: newPinBody(pin), appID: app.ID}, nil
}

// newPinBody returns a pin; Status is blocked while the server's definition differs from the accepted one.
func newPinBody(p store.ToolPin) pinBody {
	b := pinBody{
		Server: p.Server, Tool: p.Accepted.Tool, Status: "accepted",
		Hash: p.Accepted.Hash, Definition: json.RawMessage(p.Accepted.Body), PinnedAt: formatTime(p.PinnedAt),
	}
	// The tool is blocked until an operator accepts the new definition.
	if p.Drift != nil {
		b.Status = "blocked"
		b.Drift = &driftBody{Hash: p.Drift.Hash, Definition: json.RawMessage(p.Drift.Body), At: formatTime(p.DriftedAt)}
	}
	return b
}
