package task

import (
	"context"
	"errors"
	"time"

	"stoa/agentsvc"
)

// OnBusy is what becomes of a message that opens a task in a session where a run is at work or waits.
type OnBusy string

// What may become of it.
const (
	Queue     OnBusy = "queue"     // the task waits for its turn
	Reject    OnBusy = "reject"    // the message is refused
	Interrupt OnBusy = "interrupt" // the others are cancelled
)

const (
	// maxQueueAttempts bounds how often a message looks for its place in a line that others join and leave, a moment each.
	maxQueueAttempts = 200
	retryPause       = 5 * time.Millisecond

	interruptedReason = "A newer message of the conversation took the place of this task."
)

// demoteToQueue has acc's run, whose session is occupied, be born behind the others. Its place in this process is for
// somebody who can begin.
func (s *Service) demoteToQueue(acc *acceptedTurn) {
	if acc.hasSlot {
		s.executor.ReleaseSlot(s.tenant)
		acc.hasSlot = false
	}
	acc.run.Worker, acc.run.Attempts, acc.run.MayWait = "", 0, true
}

// enqueueRun has acc's run give way, if there is room in the queue.
func (s *Service) enqueueRun(ctx context.Context, acc *acceptedTurn) (err error) {
	s.demoteToQueue(acc)
	if acc.confirmWritten == nil {
		acc.confirmWritten, err = s.reserveQueueDepth(ctx)
	}
	return err
}

// resolveOccupied does what the agent of sub does when its session is occupied, so that the message can be accepted after all.
func (s *Service) resolveOccupied(ctx context.Context, sub Submission, acc *acceptedTurn) error {
	switch s.busyPolicy(sub.Agent) {
	case Reject:
		return agentsvc.ErrSessionBusy
	case Interrupt:
		return s.cancelSessionQueue(ctx, sub)
	}
	return s.enqueueRun(ctx, acc)
}

func (s *Service) busyPolicy(agent string) OnBusy {
	if b, ok := s.options.OnBusy[agent]; ok {
		return b
	}
	return Queue
}

// cancelSessionQueue cancels what stands in the line of sub's session, from its end, so that nothing begins meanwhile.
func (s *Service) cancelSessionQueue(ctx context.Context, sub Submission) error {
	ids, err := s.store.ListQueuedTasks(ctx, sub.Owner, sub.Message.Context)
	for _, id := range ids {
		_, one := s.cancelTask(ctx, Visibility{Owner: &sub.Owner}, id, interruptedReason)
		if errors.Is(one, agentsvc.ErrTaskEnded) {
			sleepContext(ctx, retryPause) // its run is about to end, too
			continue
		}
		err = errors.Join(err, one)
	}
	return err
}

// promoteNextRun has the next run of a session begin, if others wait and nobody is at work. Where it cannot, the queue's
// periodic look does.
func (s *Service) promoteNextRun(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	called, err := s.store.PromoteNextRun(ctx, owner, id)
	if err != nil {
		s.log.Warn("the next run of a session begins late", "error", err)
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
