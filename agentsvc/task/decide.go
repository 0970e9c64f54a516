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
// [agentsvc.ErrTaskEnded] for a task that has ended, [agentsvc.ErrNoOpenDecision] for what was decided before, and an
// [agentsvc.InvalidError] for a ruling that cannot be, which names the calls that wait where it is about another.
func (s *Service) Decide(ctx context.Context, visibility Visibility, id agentsvc.TaskID, by agentsvc.Owner, decisions ...DecisionInput) (agentsvc.Task, error) {
	ctx, span := trail.StartSpan(ctx, "decide")
	acc := acceptedTurn{run: s.newTurnFactory().newRun(runRequest{priority: store.PriorityNormal, trace: trail.TraceParent(ctx)})}
	err := s.applyDecisions(ctx, visibility, id, decisionBatch{by: by, decisions: decisions}, &acc)
	trail.EndSpan(span, err)
	if err != nil {
		return agentsvc.Task{}, err
	}
	s.dispatchTurn(acc)
	return acc.task, nil
}

// decisionBatch is rulings with who made them and the message that brought them, if one did.
type decisionBatch struct {
	by        agentsvc.Owner
	decisions []DecisionInput
	message   agentsvc.MessageID
	sent      *store.SentMessage
}

func (s *Service) applyDecisions(ctx context.Context, visibility Visibility, id agentsvc.TaskID, b decisionBatch, acc *acceptedTurn) error {
	for {
		t, err := s.findTask(ctx, visibility, id, store.TaskParts{History: true, Artifacts: true, Approvals: true})
		if err != nil {
			return err
		}
		b.sent.SetContext(t.Context)
		r, err := s.resolveDecisions(ctx, t, b)
		if err != nil {
			return err
		}
		if last := r.Events[len(r.Events)-1]; last.Status.State == agentsvc.Working {
			r.NextRun = s.newResumeRun(t, last.Seq, acc)
		}
		switch err = s.store.RecordDecisions(ctx, t, r); {
		case err == nil:
			s.publishDecisions(t, r, acc)
			return nil
		case errors.Is(err, agentsvc.ErrSessionBusy) && ctx.Err() == nil:
			s.demoteToQueue(acc)
			continue
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
		// The task moved on between the look and the step, or the message was here before.
		if b.sent != nil {
			if _, _, err := s.store.FindSentMessage(ctx, b.by, t.Agent, *b.sent); err == nil {
				return agentsvc.ErrNoOpenDecision
			} else if !errors.Is(err, agentsvc.ErrNotFound) {
				return err
			}
		}
	}
}

// resolveDecisions works out what follows from the rulings of b on t.
func (s *Service) resolveDecisions(ctx context.Context, t store.StoredTask, b decisionBatch) (store.DecisionRecord, error) {
	r := store.DecisionRecord{Sender: b.by, SentMessage: b.sent}
	if t.Status.State.IsTerminal() {
		return r, agentsvc.ErrTaskEnded
	}
	open := slices.Clone(t.Approvals)
	var rejected []string
	for _, input := range b.decisions {
		about, d, err := s.resolveDecision(ctx, t, open, input)
		if err != nil {
			return r, err
		}
		d.By, d.Message = b.by, b.message
		for _, a := range about {
			d.Call = a.Call.ID
			s.addDecision(&r, t, a, d)
			if d.Outcome == agentsvc.OutcomeRejected {
				rejected = append(rejected, fmt.Sprintf("The call of %s was rejected%s.", a.Call.Name, formatReason(d.Comment)))
			}
		}
		if d.Outcome == agentsvc.OutcomeSupplied {
			sealed, err := s.options.Vault.SealCredential(t.Owner, about[0].Credential, input.Value)
			if err != nil {
				return r, err
			}
			r.Credentials = append(r.Credentials, sealed)
		}
		open = slices.DeleteFunc(open, func(a agentsvc.Approval) bool { return slices.Contains(r.ClosedApprovals, a.Seq) })
	}
	status := agentsvc.Status{State: agentsvc.Working}
	switch {
	case len(rejected) > 0:
		status = newStatus(t.ID, agentsvc.Rejected, rejected)
	case len(open) > 0:
		q := NewQuestion(t.ID, open)
		status = agentsvc.Status{State: t.Status.State, Message: &q}
	}
	appendStatus(&r, t, status)
	return r, nil
}

// resolveDecision returns which of the open approvals a ruling is about, and what it says about each.
func (s *Service) resolveDecision(ctx context.Context, t store.StoredTask, open []agentsvc.Approval, r DecisionInput) ([]agentsvc.Approval, agentsvc.Decision, error) {
	if r.Outcome == agentsvc.OutcomeSupplied {
		about, err := findCredentialApprovals(t.Approvals, open, r.Tool)
		return about, agentsvc.Decision{Outcome: agentsvc.OutcomeSupplied}, err
	}
	a, err := findApproval(open, r.Call)
	if errors.Is(err, agentsvc.ErrNotFound) {
		err = s.explainMissingCall(ctx, t, open, r.Call)
	}
	if err != nil {
		return nil, agentsvc.Decision{}, err
	}
	d, err := s.checkDecision(agentsvc.WithSession(ctx, agentsvc.SessionKey{Owner: t.Owner, Context: t.Context}), a, r)
	return []agentsvc.Approval{a}, d, err
}

// explainMissingCall says why a call is not among those that wait.
func (s *Service) explainMissingCall(ctx context.Context, t store.StoredTask, open []agentsvc.Approval, call agentsvc.CallID) error {
	if call == "" {
		return agentsvc.ErrNoOpenDecision
	}
	if slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return a.Call.ID == call }) {
		return agentsvc.NewInvalidError("call_id", "%s is decided on twice at once", call)
	}
	decisions, err := s.store.ListDecisions(ctx, t.ID)
	switch {
	case err != nil:
		return err
	case slices.ContainsFunc(decisions, func(d agentsvc.Decision) bool { return d.Call == call }):
		return agentsvc.ErrNoOpenDecision
	}
	if ids := describeDecidable(open); len(ids) > 0 {
		return agentsvc.NewInvalidError("call_id", "%.64q waits for no decision of this task; what does: %s", call, strings.Join(ids, ", "))
	}
	return agentsvc.ErrNotFound
}

// maxCommentBytes bounds what an approver says about a decision, in bytes.
const maxCommentBytes = 10_000

// checkDecision makes a ruling a decision: what an approver changed is checked like what a model asks for.
func (s *Service) checkDecision(ctx context.Context, a agentsvc.Approval, r DecisionInput) (agentsvc.Decision, error) {
	d := agentsvc.Decision{Call: a.Call.ID, Outcome: r.Outcome, Arguments: r.Arguments, Comment: r.Comment}
	if len(r.Comment) > maxCommentBytes {
		return d, agentsvc.NewInvalidError("comment", "is longer than %d bytes", maxCommentBytes)
	}
	if r.Outcome != agentsvc.OutcomeApproved {
		if r.Arguments != nil {
			return d, agentsvc.NewInvalidError("arguments", "only an approved call runs with any")
		}
		return d, nil
	}
	call := a.Call
	if r.Arguments != nil {
		call.Arguments = r.Arguments
		if s.options.Check != nil {
			if err := s.options.Check(ctx, call); err != nil {
				return d, err
			}
		}
	}
	d.Hash = agentsvc.HashArguments(call.Arguments)
	return d, nil
}

// newResumeRun is the run that goes on with t's turn: its journal begins where that of the paused run does.
func (s *Service) newResumeRun(t store.StoredTask, seq int64, acc *acceptedTurn) *store.Run {
	s.newTurnFactory().setNextTurn(&acc.run, t, t.FirstSeq, seq)
	return &acc.run
}

// publishDecisions has readers and acc know of a ruling that is written.
func (s *Service) publishDecisions(t store.StoredTask, r store.DecisionRecord, acc *acceptedTurn) {
	acc.task, acc.events = t.Task, r.Events
	for _, ev := range r.Events {
		acc.task.ApplyEvent(ev)
	}
	acc.task.Approvals = nil
	if acc.task.Status.State.IsInterrupted() {
		acc.task.Approvals = slices.DeleteFunc(t.Approvals, func(a agentsvc.Approval) bool { return slices.Contains(r.ClosedApprovals, a.Seq) })
	}
	if r.NextRun == nil && acc.hasSlot { // there is nothing to run
		s.executor.ReleaseSlot(s.tenant)
		acc.hasSlot = false
	}
	s.hub.publishEvents(s.newTopicKey(t.ID), r.Events...)
}

// expireApprovals ends the task of a run that was claimed because nobody decided in time. If somebody has, or there is time
// again, the run goes back to its rest. It returns [agentsvc.ErrLeaseLost]: there is nothing to run in either case.
func (s *Service) expireApprovals(ctx context.Context, run store.Run) error {
	for {
		t, err := s.store.LoadTask(ctx, run.Task, store.TaskParts{Approvals: true})
		if err != nil {
			return err
		}
		if t.Turn != run.Turn || !t.Status.State.IsInterrupted() {
			return agentsvc.ErrLeaseLost
		}
		if waitsOnlyForBudgets(t) {
			return s.resumeWithinBudget(ctx, run, t)
		}
		late, err := s.store.ListOverdueApprovals(ctx, run.Task)
		if err != nil {
			return err
		}
		r, status := s.resolveOverdue(t, late)
		if len(r.ClosedApprovals) == 0 {
			return errors.Join(agentsvc.ErrLeaseLost, s.store.UnclaimRun(ctx, run))
		}
		appendStatus(&r, t, status)
		switch err = s.store.RecordDecisions(ctx, t, r); {
		case err == nil:
			s.hub.publishEvents(s.newTopicKey(t.ID), r.Events...)
			return agentsvc.ErrLeaseLost
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
	}
}

// resolveOverdue returns what follows from those of t's approvals that it is too late for: a call that nobody decided on is
// rejected, and what lacks a credential fails.
func (s *Service) resolveOverdue(t store.StoredTask, late []int64) (r store.DecisionRecord, status agentsvc.Status) {
	state := agentsvc.Failed
	var why []string
	for _, a := range t.Approvals {
		if !slices.Contains(late, a.Seq) {
			continue
		}
		s.addDecision(&r, t, a, agentsvc.Decision{Call: a.Call.ID, Outcome: agentsvc.OutcomeExpired})
		reason := fmt.Sprintf("Nobody supplied the credential for %s within %v.", a.Credential.Tool, a.Timeout)
		if a.NeedsDecision() {
			state = agentsvc.Rejected
			reason = fmt.Sprintf("Nobody decided about the call of %s within %v.", a.Call.Name, a.Timeout)
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	return r, newStatus(t.ID, state, why)
}

// addDecision adds to r that one of t's approvals is decided.
func (s *Service) addDecision(r *store.DecisionRecord, t store.StoredTask, a agentsvc.Approval, d agentsvc.Decision) {
	r.AuditEntries = append(r.AuditEntries, s.newDecisionEntry(t, a, d))
	r.ClosedApprovals = append(r.ClosedApprovals, a.Seq)
	r.Events = append(r.Events, agentsvc.Event{Frame: a.Frame, Decision: &d})
}

// appendStatus adds the status that follows to r and gives its events their places behind t's.
func appendStatus(r *store.DecisionRecord, t store.StoredTask, status agentsvc.Status) {
	r.Events = append(r.Events, agentsvc.Event{Status: &status})
	for i, ev := range r.Events {
		r.Events[i] = stampEvent(t.ID, t.Seq+1+int64(i), ev)
	}
}

// newStatus is a status with a message of sentences.
func newStatus(id agentsvc.TaskID, state agentsvc.State, sentences []string) agentsvc.Status {
	return agentsvc.Status{State: state, Message: &agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent,
		Parts: []agentsvc.Part{agentsvc.TextPart(strings.Join(sentences, " "))},
	}}
}

func formatReason(comment string) string {
	if comment = strings.TrimSpace(comment); comment == "" {
		return ""
	}
	return ": " + comment
}
