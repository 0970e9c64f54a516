package agentcard

import (
	"net/http"

	"stoa/agentsvc/surface/response"
)

// The paths of a card below the address that it is for: that of the specification, and the one before version 0.3.0,
// which clients of 0.3 may still try.
const (
	Path    = "/.well-known/agent-card.json"
	OldPath = "/.well-known/agent.json"
)

// cacheControl lets a client use a card for a minute before it asks again (A2A 1.0, 8.6.1). The card depends on the
// caller, so no shared cache may keep it.
const cacheControl = "private, max-age=60"

// WriteCard writes a card of any protocol as the response, with an entity tag.
func WriteCard(w http.ResponseWriter, r *http.Request, card any) error {
	w.Header().Set("Cache-Control", cacheControl)
	return response.WriteTagged(w, r, card)
}
