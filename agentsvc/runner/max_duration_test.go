package runner_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/store"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// TestLongestRun: a run that exceeds its maximum duration, in the model or in a tool, fails with a message that names
// the limit, and is not retried.
func TestLongestRun(t *testing.T) {
	for _, text := range []string{"slow", "look"} {
		t.Run(text, func(t *testing.T) {
			forEachEngine(t, func(t *testing.T, d *db.DB) {
				m := newTalkerModel(t)
				h := newTestProcess(d, quickRetry, map[string]agent.Agent{"a": newLookAgent(t, m, lookTool{call: func(ctx context.Context) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}})})
				h.options.MaxDuration = 300 * time.Millisecond
				h.resetRunner()
				h.startWorking(t)
				got, _ := h.submitAndDrain(t, newSubmission(text))
				const want = "The task ran for longer than 300ms, which is as long as one may, and was stopped."
				if got.Status.State != agentsvc.Failed || got.Status.Message.Text() != want {
					t.Errorf("%s: %q", got.Status.State, got.Status.Message.Text())
				}
				if diff := cmp.Diff(newFailure("RESOURCE_EXHAUSTED", "rule", "run_duration", "limit", 0.3), failureOf(got.Status.Message)); diff != "" {
					t.Error("metadata.error", diff)
				}
				if state, attempts, _ := h.readRunRow(t, got.ID, 1); state != store.Failed || attempts != 1 {
					t.Errorf("the run is %s after %d attempts", state, attempts)
				}
				if n := len(m.requestSteps()); n != 1 {
					t.Errorf("the model was asked %d times", n)
				}
			})
		})
	}
}

// TestLongestRunWaits: the time that a task waits for a human does not count for a run's duration.
func TestLongestRunWaits(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB) {
		tools := &recordingTool{}
		h := startApprovalProcess(t, d, newSenderModel(t), tools, 0)
		h.options.MaxDuration = 2 * time.Second
		h.resetRunner()
		got, _ := h.submitAndDrain(t, newSubmission("one"))
		began := got.Status.At
		for time.Since(began) < 3*time.Second {
			if now := h.loadApprovals(t, got.ID); len(now) != 1 {
				t.Fatalf("the task waits for %+v", now)
			}
		}
		if _, err := h.Decisions.Decide(t.Context(), anaVisibility, got.ID, approver, audit.Origin{}, newApproveInput("")); err != nil {
			t.Fatal(err)
		}
		if end := h.waitUntilSettled(t, got.ID); end.Status.State != agentsvc.Completed || len(tools.sortedCalls()) != 1 {
			t.Errorf("%s, sent %v", end.Status.State, tools.sortedCalls())
		}
	})
}
