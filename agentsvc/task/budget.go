package task

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// BudgetLook is the time between two looks whether the budget that a task waits for has room again.
const BudgetLook = 5 * time.Second

// BudgetWait is what a task waits for whose budget is used up: the arguments of its approval.
type BudgetWait struct {
	Budget string `json:"budget"`
	ID     string `json:"id"`
	Scope  string `json:"scope"`
	Needs  int64  `json:"needs"`
}

// Relief is why a task goes on that waited for a budget.
type Relief struct {
	ChangedAt time.Time // when somebody changed the budget last; zero = it is gone
	ChangedBy string
}

// budgetType is what the data part is called by which a task tells that it waits for a budget.
const budgetType = "budget"

// awaits reports whether a waits for a budget.
func awaits(a agentsvc.Approval) bool { return a.Kind == agentsvc.AwaitBudget }

// afford has a task go on whose budgets have room again, and looks again later where they have none. Its run was claimed to
// see to that. It returns [agentsvc.ErrLost]: there is nothing for this run in either case.
func (s *Service) afford(ctx context.Context, run store.Run, t store.Stored) error {
	var r store.Ruling
	for _, a := range t.Approvals {
		room, err := s.room(ctx, a)
		if err != nil {
			return err
		}
		if room == nil {
			return errors.Join(agentsvc.ErrLost, s.store.Postpone(ctx, run, a.Seq, BudgetLook))
		}
		r.Audit = append(r.Audit, relieved(t, a, *room))
		r.Settled = append(r.Settled, a.Seq)
		r.Events = append(r.Events, agentsvc.Event{Frame: a.Frame, Decision: &agentsvc.Decision{
			Call: a.Call.ID, Verdict: agentsvc.Approve, Hash: agentsvc.HashArguments(a.Call.Arguments),
		}})
	}
	acc := accepted{run: s.turns().new(request{priority: store.Normal, trace: run.Trace})}
	seal(&r, t, agentsvc.Status{State: agentsvc.Working})
	r.Next = s.next(t, r.Events[len(r.Events)-1].Seq, &acc)
	if err := s.store.Decide(ctx, t, r); err != nil {
		return err // somebody was faster, or it is looked at again
	}
	s.decided(t, r, &acc)
	s.start(acc)
	return agentsvc.ErrLost
}

// room returns why there is room for what a waits for, nil where there is none.
func (s *Service) room(ctx context.Context, a agentsvc.Approval) (*Relief, error) {
	var w BudgetWait
	if err := json.Unmarshal(a.Call.Arguments, &w); err != nil || s.o.Room == nil {
		return &Relief{}, nil //nolint:nilerr // the next call finds out
	}
	return s.o.Room(ctx, w)
}

// paused reports whether all that t waits for is budgets.
func paused(t store.Stored) bool {
	return len(t.Approvals) > 0 && !slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return !awaits(a) })
}
