package openai

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
)

// handleListModels answers with the agents that the caller may see.
func handleListModels(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	answer := modelList{Object: "list", Data: []modelRecord{}}
	for c := range v.Cards() {
		answer.Data = append(answer.Data, newModelRecord(v, c))
	}
	return response.WriteJSON(w, http.StatusOK, answer)
}

// handleGetModel answers with one agent; one that the caller may not see is not found.
func handleGetModel(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, newModelRecord(v, c))
}

// newModelRecord returns an agent as a model. Created is the app's creation time, 0 for the app of the server's own
// file: agents have none of their own.
func newModelRecord(v *surface.Request, c agentsvc.Card) modelRecord {
	m := modelRecord{ID: c.Agent, Object: "model", OwnedBy: v.App.Name}
	if at := v.App.CreatedAt; !at.IsZero() {
		m.Created = at.Unix()
	}
	return m
}
