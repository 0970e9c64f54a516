package runner_test

import (
	"context"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/agent"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// TestLongestRun: a run that takes longer than it may fails with words that say so, whether its model or a tool keeps it, and
// is not tried again.
func TestLongestRun(t *testing.T) {
	for _, text := range []string{"slow", "look"} {
		t.Run(text, func(t *testing.T) {
			each(t, func(t *testing.T, d *db.DB) {
				m := talker(t)
				h := build(d, quick, map[string]agent.Agent{"a": thinker(t, m, look{call: func(ctx context.Context) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}})})
				h.o.Longest = 300 * time.Millisecond
				h.rewire()
				h.start(t)
				got, _ := h.call(t, send(text))
				const want = "The task ran for longer than 300ms, which is as long as one may, and was stopped."
				if got.Status.State != agentsvc.Failed || got.Status.Message.Text() != want {
					t.Errorf("%s: %q", got.Status.State, got.Status.Message.Text())
				}
				if state, attempts, _ := h.row(t, got.ID, 1); state != store.Failed || attempts != 1 {
					t.Errorf("the run is %s after %d attempts", state, attempts)
				}
				if n := len(m.steps()); n != 1 {
					t.Errorf("the model was asked %d times", n)
				}
			})
		})
	}
}

// TestLongestRunWaits: the time that a task waits for a human is no time of a run.
func TestLongestRunWaits(t *testing.T) {
	each(t, func(t *testing.T, d *db.DB) {
		tools := &post{}
		h := office(t, d, sender(t), tools, 0)
		h.o.Longest = 2 * time.Second
		h.rewire()
		got, _ := h.call(t, send("one"))
		began := got.Status.At
		for time.Since(began) < 3*time.Second {
			if now := h.waiting(t, got.ID); len(now) != 1 {
				t.Fatalf("the task waits for %+v", now)
			}
		}
		if _, err := h.Decide(t.Context(), reach, got.ID, boss, approve("")); err != nil {
			t.Fatal(err)
		}
		if end := h.wait(t, got.ID); end.Status.State != agentsvc.Completed || len(tools.calls()) != 1 {
			t.Errorf("%s, sent %v", end.Status.State, tools.calls())
		}
	})
}
