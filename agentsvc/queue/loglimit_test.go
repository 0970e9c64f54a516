package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
)

// TestFailingRunsAreLoggedSeldom: runs of one tenant whose end repeatedly cannot be recorded produce one log line a
// minute, and do not suppress those of another tenant.
func TestFailingRunsAreLoggedSeldom(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		var tries, others atomic.Int64
		done := make(chan struct{})
		handle := func(_ context.Context, run store.Run, _ agentsvc.LeaseCheck) error {
			if run.Tenant == "globex" {
				others.Add(1)
			} else if tries.Add(1) == 40 {
				close(done)
			}
			return errors.New("cannot be recorded")
		}
		b.queueRuns("globex", 1)
		b.queueRuns("acme", 20)
		var log strings.Builder
		p, stop := b.openPool(queue.Options{Workers: 4, Retry: queue.Retry{MaxRetries: 1000, InitialDelay: 1, MaxDelay: 1}, Log: slog.New(slog.NewTextHandler(&log, nil))}, handle)
		p.WakeClaimers()
		receiveValue(b, done)
		if err := p.Drain(b.Context()); err != nil {
			b.Error(err)
		}
		stop()
		got := map[string]int{}
		for line := range strings.Lines(log.String()) {
			for _, app := range []string{"acme", "globex"} {
				if strings.Contains(line, "level=ERROR") && strings.Contains(line, "tenant="+app) {
					got[app]++
					if !strings.Contains(line, `next="the task continues after the delay, here or in another process"`) {
						b.Errorf("the line does not say what becomes of the task: %s", line)
					}
				}
			}
		}
		if got["acme"] != 1 || others.Load() == 0 || got["globex"] != 1 {
			b.Errorf("%d errors in the log after %d tries, and of another app %d after %d; want one each", got["acme"], tries.Load(), got["globex"], others.Load())
		}
	})
}
