package ops

import (
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/billing/export"
)

// exportBody is the state of one usage export.
type exportBody struct {
	Name string `json:"name"`
	// Batch is the number of the last batch; Pending says that it is still being delivered.
	Batch   int64 `json:"batch"`
	Pending bool  `json:"pending"`
	// Rows counts the usage rows that the receiver has accepted, Refused those that it has refused for good.
	Rows      int64   `json:"rows"`
	Refused   int64   `json:"refused"`
	LastError string  `json:"last_error,omitempty"`
	UpdatedAt *string `json:"updated_at"`
}

// handleListExports answers with the progress of each usage export.
func (a adminAPI) handleListExports(w http.ResponseWriter, r *http.Request) error {
	list, err := export.List(r.Context(), a.db)
	if err != nil {
		return err
	}
	out := make([]exportBody, len(list))
	for i, x := range list {
		out[i] = exportBody{x.Name, x.Batch, x.Pending, x.Rows, x.Refused, x.Error, formatTime(x.Updated)}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]any{"exports": out})
}
