package runner_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// TestRunMemory: a run reserves memory for the answer of its model and releases it at its end; one whose answer
// exceeds the pool fails, with a message that says so, before the answer is in memory.
func TestRunMemory(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		const answer = 600 << 10 // each byte counts twice while the answer is received
		for _, tt := range []struct {
			size  int64
			state agentsvc.State
			most  int64
		}{{8 << 20, agentsvc.Completed, 2 * answer}, {2 << 20, agentsvc.Failed, 0}} {
			var most atomic.Int64
			released := make(chan struct{}, 8)
			pool := capacity.NewPool(tt.size, func(n int64) {
				if most.Store(max(most.Load(), n)); n == 0 {
					released <- struct{}{}
				}
			})
			m := newTalkerModel(t)
			h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{})})
			h.options.Memory = pool
			h.resetRunner()
			h.startWorking(t)
			got, _ := h.submitAndDrain(t, newSubmission(strings.Repeat("x", answer)))
			if tt.most > 0 {
				<-released
			}
			if got.Status.State != tt.state || most.Load() < tt.most || most.Load() > tt.most+64<<10 {
				t.Errorf("of %d bytes: %s %.100q, %d bytes taken at most, want %d", tt.size, got.Status.State, got.Status.Message.Text(), most.Load(), tt.most)
			}
			if tt.state == agentsvc.Failed && !strings.HasPrefix(got.Status.Message.Text(), "this takes 1.2 MiB of memory and there are at most 1.0 MiB for it") {
				t.Errorf("it says %.100q", got.Status.Message.Text())
			}
			h.shutDown()
		}
	})
}
