package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/llm/llmtest"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db/dbtest"
)

// inlineWorkers executes each run with its function run.
type inlineWorkers struct {
	task.Executor
	run func(store.Run)
}

func (w inlineWorkers) StartRun(run store.Run) {
	w.ReleaseSlot(run.Tenant)
	w.run(run)
}

// TestLeaseLost checks a turn that calls its model, a tool, and the model again: wherever it loses its lease, it takes
// no further step.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	for lostAt, want := range []int{0, 1, 1} {
		t.Run(fmt.Sprintf("before effect %d", lostAt), func(t *testing.T) {
			t.Parallel()
			srv := llmtest.NewServer(t, []llmtest.Reply{
				{UserText: "go", Calls: []agentsvc.ToolCall{{Name: "calc", Arguments: json.RawMessage(`{"expression":"6*7"}`)}}},
				{ToolName: "calc", Pieces: []string{"Done."}},
			})
			src := "llms: {default: {provider: ollama, base_url: " + srv.URL + "}}\ntools: {calc: {type: function, handler: calculator}}\nagents: {helper: {tools: [calc]}}\n"
			ended := make(chan error, 1)
			var a *runtime.Runtime
			a = newAppWith(t, dbtest.NewSQLite(t), mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme", Name: "acme", Revision: 1, PrivateNetwork: true}, slog.New(slog.DiscardHandler), func(h *runtime.Dependencies) {
				h.Workers = inlineWorkers{h.Workers, func(run store.Run) {
					ctx, lose := context.WithCancelCause(context.Background())
					defer lose(nil)
					requested := 0
					ended <- a.ExecuteRun(ctx, run, agentsvc.LeaseCheck{Confirm: func(context.Context) {
						if requested++; requested > lostAt {
							lose(agentsvc.ErrLeaseLost)
						}
					}})
				}}
			})
			accepted, _, err := a.Tasks().Messages.SubmitAndFollow(t.Context(), newSubmission("go"))
			if err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, agentsvc.ErrLeaseLost) {
				t.Errorf("ended with %v", err)
			}
			if n := len(srv.Requests()); n != want {
				t.Errorf("the model was asked %d times, want %d", n, want)
			}
			got, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{}, accepted.ID, store.TaskParts{})
			if err != nil || got.Status.State != agentsvc.Working {
				t.Errorf("the task is %s (%v)", got.Status.State, err)
			}
		})
	}
}
