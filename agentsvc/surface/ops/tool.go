package ops

import (
	"context"
	"encoding/json"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
)

// handleListTools lists what is pinned of the tools that servers bring to an app.
func (a adminAPI) handleListTools(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
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

// acceptTool lifts the block of a tool whose definition has changed. The order names the definition by its hash, so
// that nobody accepts another one than they have seen.
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

func newPinBody(p store.ToolPin) pinBody {
	b := pinBody{
		Server: p.Server, Tool: p.Accepted.Tool, Status: "accepted",
		Hash: p.Accepted.Hash, Definition: json.RawMessage(p.Accepted.Body), PinnedAt: formatTime(p.PinnedAt),
	}
	if p.Drift != nil {
		b.Status = "blocked"
		b.Drift = &driftBody{Hash: p.Drift.Hash, Definition: json.RawMessage(p.Drift.Body), At: formatTime(p.DriftedAt)}
	}
	return b
}
