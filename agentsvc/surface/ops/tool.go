package ops

import (
	"context"
	"encoding/json"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
)

// tools lists what is pinned of the tools that servers bring to an app.
func (a admin) tools(w http.ResponseWriter, r *http.Request) error {
	app, err := a.apps.Get(r.Context(), surface.Param(r, "app"))
	if err != nil {
		return err
	}
	pins, err := store.New(a.db, app.ID).Pins(r.Context())
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
func (a admin) acceptTool(ctx context.Context, o *order) (answer, error) {
	var b acceptBody
	if err := o.decode(&b, false); err != nil {
		return answer{}, err
	}
	if b.Hash == "" {
		return answer{}, agentsvc.Invalid("hash", "is missing: it is the one that drift.hash shows")
	}
	app, err := a.apps.Get(ctx, o.app())
	if err != nil {
		return answer{}, err
	}
	server, tool := surface.Param(o.r, "server"), surface.Param(o.r, "tool")
	pin, err := store.New(a.db, app.ID).AcceptPin(ctx, o.actor, server, tool, b.Hash)
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusOK, body: newPinBody(pin), app: app.ID}, nil
}

func newPinBody(p store.Pin) pinBody {
	b := pinBody{
		Server: p.Server, Tool: p.Accepted.Tool, Status: "accepted",
		Hash: p.Accepted.Hash, Definition: json.RawMessage(p.Accepted.Body), PinnedAt: stamp(p.PinnedAt),
	}
	if p.Drift != nil {
		b.Status = "blocked"
		b.Drift = &driftBody{Hash: p.Drift.Hash, Definition: json.RawMessage(p.Drift.Body), At: stamp(p.DriftedAt)}
	}
	return b
}
