package task

import (
	"context"
	"log/slog"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// OnBusy is an agent's policy for a message that opens a task in a session with an unfinished run (docs/agents.md).
type OnBusy string

// The policies.
const (
	Queue     OnBusy = "queue"     // the task waits until the earlier runs have ended
	Reject    OnBusy = "reject"    // the message is refused
	Interrupt OnBusy = "interrupt" // the earlier tasks are cancelled
)

const (
	// maxQueueAttempts bounds how often a message tries to join a session's queue that other messages join and leave
	// meanwhile. Each attempt fails only if the queue changed within one transaction.
	maxQueueAttempts = 200
	// retryPause is the delay after a task that has ended but whose run has not.
	retryPause = 5 * time.Millisecond

	// interruptedReason is the message of a task that [Interrupt] cancels.
	interruptedReason = "A newer message of the conversation took the place of this task."
)

// sessionQueues are the runs of a tenant that wait for earlier runs of their sessions.
type sessionQueues struct {
	runs     *store.Runs
	executor Executor
	log      *slog.Logger
}

// promoteNext makes the session's next waiting run pending, if no other run of the session is unfinished. On
// failure it only logs: the queue's periodic check promotes the run later.
func (s *sessionQueues) promoteNext(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) {
	// The caller's request may be over: the run must still be promoted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	called, err := s.runs.PromoteNext(ctx, owner, id)
	if err != nil {
		s.log.Warn("the next run of a session could not be promoted and begins later", "error", err)
	}
	if called {
		s.executor.WakeClaimers()
	}
}

func sleepContext(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
