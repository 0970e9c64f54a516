package runtime

import (
	"context"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/ratelimit"
)

// AdmitCall checks the app's budgets and counts a call against its limits, before the task is accepted. What it
// reserves for the turn is recorded in sub. It returns the state of the limits, and release, which the caller must call
// at the end: it returns the reservation unless the turn was stored with it. The error has
// [agentsvc.CodeExhausted]; its detail is an [*agentsvc.ExhaustedBudget] or a [*ratelimit.State].
func (rt *Runtime) AdmitCall(ctx context.Context, sub *task.Submission) (states []ratelimit.State, release func(), err error) {
	// Budgets come first: they are only read here, so that a call they refuse does not count against a limit.
	if err := rt.CheckBudget(ctx, sub.Agent, sub.Owner); err != nil {
		return nil, nil, err
	}
	caller := ratelimit.Caller{Agent: sub.Agent, Owner: sub.Owner, Session: rt.findSession(ctx, sub)}
	g, err := rt.rateLimits.CountCall(ctx, caller, sub.Message)
	if err != nil || g.Reservation.Tokens == 0 {
		return g.States, func() {}, err
	}
	reservation := &task.LimitReservation{Note: g.Reservation.EncodeText()}
	sub.LimitReservation = reservation
	return g.States, func() {
		if !reservation.Recorded {
			rt.rateLimits.ReleaseTokens(caller, g.Reservation)
		}
	}, nil
}

// findSession returns the context that a submission belongs to, "" if nothing is counted by session. For one that opens a
// context it sets the new one, so that the opening message counts in it. A task that does not exist has a new one too:
// the submission will be refused.
func (rt *Runtime) findSession(ctx context.Context, sub *task.Submission) agentsvc.ContextID {
	switch {
	case rt.rateLimits == nil || !rt.rateLimits.countsSessions:
		return ""
	case sub.Message.Context != "":
		return sub.Message.Context
	case sub.Message.Task != "":
		visibility := task.Visibility{Agents: []string{sub.Agent}, Owner: &sub.Owner, Memory: sub.Memory}
		if t, err := rt.tasks.Reader.Get(ctx, visibility, sub.Message.Task, store.TaskParts{}); err == nil {
			return t.Context
		}
	}
	sub.NewContext = agentsvc.ContextID(agentsvc.NewID())
	return sub.NewContext
}
