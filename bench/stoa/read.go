package stoa

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"stoa/bench/load"
)

// Read is one request of what is there.
type Read struct {
	Name   string
	Target load.Target
	Size   int // bytes of its answer
}

// ErrNoTasks is returned where an agent that was called has no tasks.
var ErrNoTasks = errors.New("the agent has no tasks")

// Reads are what a caller reads of an agent that it has called: a page of its tasks, one of them with its history, its card.
func (s *Server) Reads(ctx context.Context, token, agent string) ([]Read, error) {
	base := "/v1/agents/" + agent
	var page struct{ Tasks []struct{ ID string } }
	if err := s.send(ctx, http.MethodGet, base+"/tasks", token, nil, &page); err != nil {
		return nil, err
	}
	if len(page.Tasks) == 0 {
		return nil, ErrNoTasks
	}
	task := page.Tasks[len(page.Tasks)/2].ID
	reads := []Read{{Name: "list"}, {Name: "get"}, {Name: "card"}}
	for i, at := range []struct{ path, want string }{{"/tasks", task}, {"/tasks/" + task, task}, {"/.well-known/agent-card.json", agent}} {
		got, err := s.exchange(ctx, http.MethodGet, base+at.path, token, nil)
		if err != nil {
			return nil, err
		}
		reads[i].Size = len(got)
		reads[i].Target, err = load.NewTarget(load.Spec{
			URL: s.URL + base + at.path, Header: map[string]string{"Authorization": "Bearer " + token}, Want: at.want,
		})
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", reads[i].Name, err)
		}
	}
	return reads, nil
}
