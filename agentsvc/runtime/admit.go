package runtime

import (
	"context"

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
	caller := ratelimit.Caller{Agent: sub.Agent, Owner: sub.Owner, Session: sub.Message.Context}
	g, err := rt.rateLimits.CountCall(ctx, caller, sub.Message)
	if err != nil || g.Reservation.Tokens == 0 {
		return g.States, func() {}, err
	}
	reservation := &task.Reservation{Note: g.Reservation.EncodeText()}
	sub.Reservation = reservation
	return g.States, func() {
		if !reservation.Recorded {
			rt.rateLimits.ReleaseReservation(caller, g.Reservation)
		}
	}, nil
}
