package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
)

// here runs what is handed over as run does.
type here struct {
	task.Handoff
	run func(store.Run)
}

func (h here) Start(run store.Run) {
	h.Release(run.Tenant)
	h.run(run)
}

// TestLeaseLost: a turn asks its model, runs a tool and asks again. Wherever it has lost its lease, it goes no step
// further.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	for lostAt, want := range []int{0, 1, 1} {
		t.Run(fmt.Sprintf("before effect %d", lostAt), func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, []llmtest.Turn{
				{Text: "go", Calls: []agentsvc.ToolCall{{Name: "calc", Arguments: json.RawMessage(`{"expression":"6*7"}`)}}},
				{Tool: "calc", Say: []string{"Done."}},
			})
			src := "llms: {default: {provider: ollama, base_url: " + srv.URL + "}}\ntools: {calc: {type: function, handler: calculator}}\nagents: {helper: {tools: [calc]}}\n"
			ended := make(chan error, 1)
			var a *app.App
			a = houseOf(t, dbtest.SQLite(t), parsed(t, src, config.Options{}), app.Tenant{ID: "acme", Name: "acme", Revision: 1, Inside: true}, slog.New(slog.DiscardHandler), func(h *app.House) {
				h.Workers = here{h.Workers, func(run store.Run) {
					ctx, lose := context.WithCancelCause(context.Background())
					defer lose(nil)
					asked := 0
					ended <- a.Run(agentsvc.WithLease(ctx, func(context.Context) {
						if asked++; asked > lostAt {
							lose(agentsvc.ErrLost)
						}
					}), run)
				}}
			})
			accepted, _, err := a.Tasks().Call(t.Context(), say("go"))
			if err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, agentsvc.ErrLost) {
				t.Errorf("ended with %v", err)
			}
			if n := len(srv.Requests()); n != want {
				t.Errorf("the model was asked %d times, want %d", n, want)
			}
			got, err := a.Tasks().Get(t.Context(), task.Reach{}, accepted.ID, store.With{})
			if err != nil || got.Status.State != agentsvc.Working {
				t.Errorf("the task is %s (%v)", got.Status.State, err)
			}
		})
	}
}
