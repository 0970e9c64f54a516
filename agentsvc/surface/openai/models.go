package openai

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

func models(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	answer := modelList{Object: "list", Data: []modelRecord{}}
	for _, c := range v.Cards() {
		answer.Data = append(answer.Data, newModel(v, c))
	}
	return surface.WriteJSON(w, http.StatusOK, answer)
}

func model(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	c, err := v.Card(surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, newModel(v, c))
}

// newModel returns an agent as a model, which was made when its app was.
func newModel(v *surface.Visit, c agentsvc.Card) modelRecord {
	m := modelRecord{ID: c.Agent, Object: "model", OwnedBy: v.App.Name}
	if at := v.App.CreatedAt; !at.IsZero() {
		m.Created = at.Unix()
	}
	return m
}
