package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/store/toolpin"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/mutation"
	"stoa/agentsvc/surface/response"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// toolHandler serves apps' pinned tools. It is read-only and used by value.
type toolHandler struct {
	apps *tenancy.Service
	db   *db.DB
}

// handleListTools answers with the pinned definitions of the tools that MCP servers offer to an app.
func (h toolHandler) handleListTools(w http.ResponseWriter, r *http.Request) error {
	app, err := h.apps.LoadApp(r.Context(), surface.PathParam(r, "app"))
	if err != nil {
		return err
	}
	// The store of the app's ID: row-level security then limits the statement to this tenant.
	pins, err := toolpin.New(h.db, app.ID).List(r.Context())
	if err != nil {
		return err
	}
	out := make([]pinBody, len(pins))
	for i, p := range pins {
		out[i] = newPinBody(p)
	}
	return response.WriteJSON(w, http.StatusOK, map[string]any{"tools": out})
}

// acceptTool accepts the changed definition of a tool and so unblocks the tool. The request names the definition by
// its hash: if the server has changed it again meanwhile, the request fails, and no definition is accepted that
// they have not read.
func (h toolHandler) acceptTool(ctx context.Context, o *mutation.Request) (mutation.Result, error) {
	var b acceptBody
	if err := o.DecodeBody(&b, false); err != nil {
		return mutation.Result{}, err
	}
	if b.Hash == "" {
		return mutation.Result{}, agentsvc.NewInvalidError("hash", "is missing: it is the one that drift.hash shows")
	}
	app, err := h.apps.LoadApp(ctx, o.AppName())
	if err != nil {
		return mutation.Result{}, err
	}
	server, tool := surface.PathParam(o.HTTP, "mcp_server"), surface.PathParam(o.HTTP, "tool")
	pin, err := toolpin.New(h.db, app.ID).Accept(ctx, o.Actor, server, tool, b.Hash)
	if err != nil {
		return mutation.Result{}, err
	}
	return mutation.Result{Status: http.StatusOK, Body: newPinBody(pin), AppID: app.ID}, nil
}

// newPinBody returns a pin; Status is blocked while the server's definition differs from the accepted one.
func newPinBody(p toolpin.Pin) pinBody {
	b := pinBody{
		Server: p.Server, Tool: p.Accepted.Tool, Status: "accepted",
		Hash: p.Accepted.Hash, Definition: json.RawMessage(p.Accepted.Body), PinnedAt: encode.FormatOptionalTime(p.PinnedAt),
	}
	// The tool is blocked until an operator accepts the new definition.
	if p.Drift != nil {
		b.Status = "blocked"
		b.Drift = &driftBody{Hash: p.Drift.Hash, Definition: json.RawMessage(p.Drift.Body), At: encode.FormatOptionalTime(p.DriftedAt)}
	}
	return b
}
