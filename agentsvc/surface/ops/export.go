package ops

import (
	"net/http"

	"stoa/agentsvc/surface"
)

type exportBody struct {
	Name      string  `json:"name"`
	Batch     int64   `json:"batch"`   // the last one
	Pending   bool    `json:"pending"` // it is under way
	Rows      int64   `json:"rows"`    // that were taken
	Refused   int64   `json:"refused"` // that never will be
	LastError string  `json:"last_error,omitempty"`
	UpdatedAt *string `json:"updated_at"`
}

// handleListExports answers with how far each export of usage is.
func (a adminAPI) handleListExports(w http.ResponseWriter, r *http.Request) error {
	list, err := a.billing.ListExports(r.Context())
	if err != nil {
		return err
	}
	out := make([]exportBody, len(list))
	for i, x := range list {
		out[i] = exportBody{x.Name, x.Batch, x.Pending, x.Rows, x.Refused, x.Error, formatTime(x.Updated)}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"exports": out})
}
