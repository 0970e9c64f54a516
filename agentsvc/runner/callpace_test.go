package runner_test

import (
	"runtime"
	"testing"

	"golang.org/x/time/rate"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/runner"
	"stoa/tenancy/db"
)

// TestCallPace: the model calls of a turn wait for the pace of their app from the eleventh on.
func TestCallPace(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		m := newScriptedModel(t,
			scripted.Rule{When: scripted.When{Text: "^short$"}, Then: []scripted.Item{{Text: "done"}}},
			scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "look"}}}},
		)
		h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{})})
		const burst = 1000
		pace := rate.NewLimiter(1e-9, burst) // no call waits, and what was taken stays visible
		h.options.CallPace = pace
		h.resetRunner()
		h.startWorking(t)
		if h.submitAndDrain(t, newSubmission("short")); pace.Tokens() < burst {
			t.Errorf("a turn of one call took %v from the pace", burst-pace.Tokens())
		}
		before := len(m.requestSteps())
		if got, _ := h.submitAndDrain(t, newSubmission("loop")); got.Status.State != agentsvc.Failed {
			t.Errorf("an endless turn is %s", got.Status.State)
		}
		calls := len(m.requestSteps()) - before
		if paced := burst - int(pace.Tokens()+0.5); calls < 20 || paced != calls-10 {
			t.Errorf("of %d calls %d waited for the pace, want all but 10", calls, paced)
		}
	})
	if got, want := runner.NewCallPace().Limit(), rate.Limit(100*runtime.GOMAXPROCS(0)); got != want {
		t.Errorf("the pace is %v a second, want %v", got, want)
	}
}
