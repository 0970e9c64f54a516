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
	// maxTries bounds how often a message looks for its place in a line that others join and leave, a moment each.
	maxTries = 200
	moment   = 5 * time.Millisecond

	interrupted = "A newer message of the conversation took the place of this task."
)

// giveWay has acc's run, whose session is occupied, be born behind the others. Its place in this process is for
// somebody who can begin.
func (s *Service) giveWay(acc *accepted) {
	if acc.held {
		s.workers.Release(s.tenant)
		acc.held = false
	}
	acc.run.Worker, acc.run.Attempts, acc.run.Wait = "", 0, true
}

// queue has acc's run give way, if there is room in the queue.
func (s *Service) queue(ctx context.Context, acc *accepted) (err error) {
	s.giveWay(acc)
	if acc.written == nil {
		acc.written, err = s.admit(ctx)
	}
	return err
}

// meet does what the agent of sub does when its session is occupied, so that the message can be accepted after all.
func (s *Service) meet(ctx context.Context, sub Submission, acc *accepted) error {
	switch s.onBusy(sub.Agent) {
	case Reject:
		return agentsvc.ErrOccupied
	case Interrupt:
		return s.interrupt(ctx, sub)
	}
	return s.queue(ctx, acc)
}

func (s *Service) onBusy(agent string) OnBusy {
	if b, ok := s.o.OnBusy[agent]; ok {
		return b
	}
	return Queue
}

// interrupt cancels what stands in the line of sub's session, from its end, so that nothing begins meanwhile.
func (s *Service) interrupt(ctx context.Context, sub Submission) error {
	ids, err := s.store.Line(ctx, sub.Owner, sub.Message.Context)
	for _, id := range ids {
		_, one := s.cancel(ctx, Reach{Owner: &sub.Owner}, id, interrupted)
		if errors.Is(one, agentsvc.ErrTerminal) {
			pauseFor(ctx, moment) // its run is about to end, too
			continue
		}
		err = errors.Join(err, one)
	}
	return err
}

// callUp has the next run of a session begin, if others wait and nobody is at work. Where it cannot, the queue's
// periodic look does.
func (s *Service) callUp(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	called, err := s.store.CallUp(ctx, owner, id)
	if err != nil {
		s.log.Warn("the next run of a session begins late", "error", err)
	}
	if called {
		s.workers.Wake()
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
