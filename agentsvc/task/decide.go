package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trail"
)

// Decide settles tool calls of a task that wait for a human; by is who decides or supplies. When all are settled the turn
// goes on where it stopped, one reject ends the task. Only the task's owner, of whom reach must make sure, supplies
// credentials. It returns [agentsvc.ErrNotFound] for a task out of reach and for a call where none waits,
// [agentsvc.ErrTerminal] for a task that has ended, [agentsvc.ErrDecided] for what was decided before, and an
// [agentsvc.InvalidError] for a ruling that cannot be, which names the calls that wait where it is about another.
func (s *Service) Decide(ctx context.Context, reach Reach, id agentsvc.TaskID, by agentsvc.Owner, rulings ...Ruling) (agentsvc.Task, error) {
	ctx, span := trail.Start(ctx, "decide")
	acc := accepted{run: s.turns().new(request{priority: store.Normal, trace: trail.Parent(ctx)})}
	err := s.decide(ctx, reach, id, bench{by: by, rulings: rulings}, &acc)
	trail.End(span, err)
	if err != nil {
		return agentsvc.Task{}, err
	}
	s.start(acc)
	return acc.task, nil
}

// bench is rulings with who made them and the message that brought them, if one did.
type bench struct {
	by      agentsvc.Owner
	rulings []Ruling
	message agentsvc.MessageID
	sent    *store.Sent
}

func (s *Service) decide(ctx context.Context, reach Reach, id agentsvc.TaskID, b bench, acc *accepted) error {
	for {
		t, err := s.find(ctx, reach, id, store.With{History: true, Artifacts: true, Approvals: true})
		if err != nil {
			return err
		}
		b.sent.Within(t.Context)
		r, err := s.rule(ctx, t, b)
		if err != nil {
			return err
		}
		if last := r.Events[len(r.Events)-1]; last.Status.State == agentsvc.Working {
			r.Next = s.next(t, last.Seq, acc)
		}
		switch err = s.store.Decide(ctx, t, r); {
		case err == nil:
			s.decided(t, r, acc)
			return nil
		case errors.Is(err, agentsvc.ErrOccupied) && ctx.Err() == nil:
			s.giveWay(acc)
			continue
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
		// The task moved on between the look and the step, or the message was here before.
		if b.sent != nil {
			if _, _, err := s.store.FindSent(ctx, b.by, t.Agent, *b.sent); err == nil {
				return agentsvc.ErrDecided
			} else if !errors.Is(err, agentsvc.ErrNotFound) {
				return err
			}
		}
	}
}

// rule works out what follows from the rulings of b on t.
func (s *Service) rule(ctx context.Context, t store.Stored, b bench) (store.Ruling, error) {
	r := store.Ruling{Sender: b.by, Sent: b.sent}
	if t.Status.State.Terminal() {
		return r, agentsvc.ErrTerminal
	}
	open := slices.Clone(t.Approvals)
	var rejected []string
	for _, ruling := range b.rulings {
		about, d, err := s.answer(ctx, t, open, ruling)
		if err != nil {
			return r, err
		}
		d.By, d.Message = b.by, b.message
		for _, a := range about {
			d.Call = a.Call.ID
			s.settle(&r, t, a, d)
			if d.Verdict == agentsvc.Reject {
				rejected = append(rejected, fmt.Sprintf("The call of %s was rejected%s.", a.Call.Name, because(d.Comment)))
			}
		}
		if d.Verdict == agentsvc.Supply {
			sealed, err := s.o.Vault.Seal(t.Owner, about[0].Credential, ruling.Value)
			if err != nil {
				return r, err
			}
			r.Supply = append(r.Supply, sealed)
		}
		open = slices.DeleteFunc(open, func(a agentsvc.Approval) bool { return slices.Contains(r.Settled, a.Seq) })
	}
	status := agentsvc.Status{State: agentsvc.Working}
	switch {
	case len(rejected) > 0:
		status = told(t.ID, agentsvc.Rejected, rejected)
	case len(open) > 0:
		q := Question(t.ID, open)
		status = agentsvc.Status{State: t.Status.State, Message: &q}
	}
	seal(&r, t, status)
	return r, nil
}

// answer returns which of the open approvals a ruling is about, and what it says about each.
func (s *Service) answer(ctx context.Context, t store.Stored, open []agentsvc.Approval, r Ruling) ([]agentsvc.Approval, agentsvc.Decision, error) {
	if r.Verdict == agentsvc.Supply {
		about, err := wanting(t.Approvals, open, r.Tool)
		return about, agentsvc.Decision{Verdict: agentsvc.Supply}, err
	}
	a, err := choose(open, r.Call)
	if errors.Is(err, agentsvc.ErrNotFound) {
		err = s.missing(ctx, t, open, r.Call)
	}
	if err != nil {
		return nil, agentsvc.Decision{}, err
	}
	d, err := s.judge(agentsvc.WithSession(ctx, agentsvc.SessionKey{Owner: t.Owner, Context: t.Context}), a, r)
	return []agentsvc.Approval{a}, d, err
}

// missing says why a call is not among those that wait.
func (s *Service) missing(ctx context.Context, t store.Stored, open []agentsvc.Approval, call agentsvc.CallID) error {
	if call == "" {
		return agentsvc.ErrDecided
	}
	if slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return a.Call.ID == call }) {
		return agentsvc.Invalid("call_id", "%s is decided on twice at once", call)
	}
	decisions, err := s.store.Decisions(ctx, t.ID)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(decisions, func(d agentsvc.Decision) bool { return d.Call == call }):
		return agentsvc.ErrDecided
	}
	if ids := decidable(open); len(ids) > 0 {
		return agentsvc.Invalid("call_id", "%.64q waits for no decision of this task; what does: %s", call, strings.Join(ids, ", "))
	}
	return agentsvc.ErrNotFound
}

// maxComment bounds what an approver says about a decision, in bytes.
const maxComment = 10_000

// judge makes a ruling a decision: what an approver changed is checked like what a model asks for.
func (s *Service) judge(ctx context.Context, a agentsvc.Approval, r Ruling) (agentsvc.Decision, error) {
	d := agentsvc.Decision{Call: a.Call.ID, Verdict: r.Verdict, Arguments: r.Arguments, Comment: r.Comment}
	if len(r.Comment) > maxComment {
		return d, agentsvc.Invalid("comment", "is longer than %d bytes", maxComment)
	}
	if r.Verdict != agentsvc.Approve {
		if r.Arguments != nil {
			return d, agentsvc.Invalid("arguments", "only an approved call runs with any")
		}
		return d, nil
	}
	call := a.Call
	if r.Arguments != nil {
		call.Arguments = r.Arguments
		if s.o.Check != nil {
			if err := s.o.Check(ctx, call); err != nil {
				return d, err
			}
		}
	}
	d.Hash = agentsvc.HashArguments(call.Arguments)
	return d, nil
}

// next is the run that goes on with t's turn: its journal begins where that of the paused run does.
func (s *Service) next(t store.Stored, seq int64, acc *accepted) *store.Run {
	s.turns().goOn(&acc.run, t, t.FirstSeq, seq)
	return &acc.run
}

// decided has readers and acc know of a ruling that is written.
func (s *Service) decided(t store.Stored, r store.Ruling, acc *accepted) {
	acc.task, acc.events = t.Task, r.Events
	for _, ev := range r.Events {
		acc.task.Apply(ev)
	}
	acc.task.Approvals = nil
	if acc.task.Status.State.Interrupted() {
		acc.task.Approvals = slices.DeleteFunc(t.Approvals, func(a agentsvc.Approval) bool { return slices.Contains(r.Settled, a.Seq) })
	}
	if r.Next == nil && acc.held { // there is nothing to run
		s.workers.Release(s.tenant)
		acc.held = false
	}
	s.hub.publish(s.key(t.ID), r.Events...)
}

// expire ends the task of a run that was claimed because nobody decided in time. If somebody has, or there is time
// again, the run goes back to its rest. It returns [agentsvc.ErrLost]: there is nothing to run in either case.
func (s *Service) expire(ctx context.Context, run store.Run) error {
	for {
		t, err := s.store.Task(ctx, run.Task, store.With{Approvals: true})
		if err != nil {
			return err
		}
		if t.Turn != run.Turn || !t.Status.State.Interrupted() {
			return agentsvc.ErrLost
		}
		if paused(t) {
			return s.afford(ctx, run, t)
		}
		late, err := s.store.Overdue(ctx, run.Task)
		if err != nil {
			return err
		}
		r, status := s.tooLate(t, late)
		if len(r.Settled) == 0 {
			return errors.Join(agentsvc.ErrLost, s.store.Rest(ctx, run))
		}
		seal(&r, t, status)
		switch err = s.store.Decide(ctx, t, r); {
		case err == nil:
			s.hub.publish(s.key(t.ID), r.Events...)
			return agentsvc.ErrLost
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
	}
}

// tooLate returns what follows from those of t's approvals that it is too late for: a call that nobody decided on is
// rejected, and what lacks a credential fails.
func (s *Service) tooLate(t store.Stored, late []int64) (r store.Ruling, status agentsvc.Status) {
	state := agentsvc.Failed
	var why []string
	for _, a := range t.Approvals {
		if !slices.Contains(late, a.Seq) {
			continue
		}
		s.settle(&r, t, a, agentsvc.Decision{Call: a.Call.ID, Verdict: agentsvc.Expire})
		reason := fmt.Sprintf("Nobody supplied the credential for %s within %v.", a.Credential.Tool, a.Timeout)
		if a.Decidable() {
			state = agentsvc.Rejected
			reason = fmt.Sprintf("Nobody decided about the call of %s within %v.", a.Call.Name, a.Timeout)
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	return r, told(t.ID, state, why)
}

// settle adds to r that one of t's approvals is decided.
func (s *Service) settle(r *store.Ruling, t store.Stored, a agentsvc.Approval, d agentsvc.Decision) {
	r.Audit = append(r.Audit, s.decidedOn(t, a, d))
	r.Settled = append(r.Settled, a.Seq)
	r.Events = append(r.Events, agentsvc.Event{Frame: a.Frame, Decision: &d})
}

// seal adds the status that follows to r and gives its events their places behind t's.
func seal(r *store.Ruling, t store.Stored, status agentsvc.Status) {
	r.Events = append(r.Events, agentsvc.Event{Status: &status})
	for i, ev := range r.Events {
		r.Events[i] = stamp(t.ID, t.Seq+1+int64(i), ev)
	}
}

// told is a status with a message of sentences.
func told(id agentsvc.TaskID, state agentsvc.State, sentences []string) agentsvc.Status {
	return agentsvc.Status{State: state, Message: &agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent,
		Parts: []agentsvc.Part{agentsvc.TextPart(strings.Join(sentences, " "))},
	}}
}

func because(comment string) string {
	if comment = strings.TrimSpace(comment); comment == "" {
		return ""
	}
	return ": " + comment
}
