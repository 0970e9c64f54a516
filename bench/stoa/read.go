package stoa

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"stoa/bench/load"
)

// Read is a request of what is there.
type Read struct {
	Name    string
	Targets []load.Target // one, or where each caller asks for something else, of the same size, as many as there are callers
	Size    int           // bytes of its answer
}

// ErrNoTasks is returned where an agent that was called has no tasks.
var ErrNoTasks = errors.New("the agent has no tasks")

// place is where something is read, and what stands in the answer.
type place struct{ path, want string }

// Reads are what callers read of an agent that has been called: a page of its tasks, one of them with its history, its
// card. Pages and tasks come a second time, with another one for each of so many callers, as far as there are as many.
func (s *Server) Reads(ctx context.Context, token, agent string, callers int) ([]Read, error) {
	base := "/v1/agents/" + agent
	var all taskPage
	if err := s.send(ctx, http.MethodGet, base+"/tasks", token, nil, &all); err != nil {
		return nil, err
	}
	if len(all.Tasks) == 0 {
		return nil, ErrNoTasks
	}
	of := func(i int) place { return place{"/tasks/" + all.Tasks[i].ID, all.Tasks[i].ID} }
	middle := of(len(all.Tasks) / 2)
	var pages, tasks []place
	var one taskPage
	for i := range min(callers, len(all.Tasks)-1) {
		if err := s.send(ctx, http.MethodGet, base+"/tasks?page_size=1&page_token="+one.NextPageToken, token, nil, &one); err != nil {
			return nil, err
		}
		pages, tasks = append(pages, place{"/tasks?page_token=" + one.NextPageToken, all.Tasks[i+1].ID}), append(tasks, of(i))
	}
	var reads []Read
	for _, x := range []struct {
		name   string
		places []place
	}{
		{"list", []place{{"/tasks", middle.want}}}, {"get", []place{middle}}, {"card", []place{{"/.well-known/agent-card.json", agent}}},
		{"list, another page for each caller", pages}, {"get, another task for each caller", tasks},
	} {
		r, err := s.again(ctx, token, base, x.name, x.places)
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", x.name, err)
		}
		if len(r.Targets) > 0 {
			reads = append(reads, r)
		}
	}
	return reads, nil
}

type taskPage struct {
	Tasks         []struct{ ID string }
	NextPageToken string
}

// again reads each place once and returns the requests that do so again.
func (s *Server) again(ctx context.Context, token, base, name string, places []place) (Read, error) {
	r := Read{Name: name}
	for _, at := range places {
		got, err := s.exchange(ctx, http.MethodGet, base+at.path, token, nil)
		if err != nil {
			return r, err
		}
		r.Size = max(r.Size, len(got))
		t, err := load.NewTarget(load.Spec{URL: s.URL + base + at.path, Header: map[string]string{"Authorization": "Bearer " + token}, Want: at.want})
		if err != nil {
			return r, err
		}
		r.Targets = append(r.Targets, t)
	}
	return r, nil
}
