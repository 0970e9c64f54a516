package openai

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

func handleListModels(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	answer := modelList{Object: "list", Data: []modelRecord{}}
	for _, c := range v.Cards() {
		answer.Data = append(answer.Data, newModelRecord(v, c))
	}
	return surface.WriteJSON(w, http.StatusOK, answer)
}

func handleGetModel(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newModelRecord(v, c))
}

// newModelRecord returns an agent as a model, which was made when its app was.
func newModelRecord(v *surface.Request, c agentsvc.Card) modelRecord {
	m := modelRecord{ID: c.Agent, Object: "model", OwnedBy: v.App.Name}
	if at := v.App.CreatedAt; !at.IsZero() {
		m.Created = at.Unix()
	}
	return m
}
