package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
	"stoa/agentsvc/trail"
	"stoa/tenancy/audit"
)

// Decide settles tool calls of a task that wait for a human; by is the principal who decides or supplies a credential,
// from is where the request came from. When all are settled the paused turn continues in a new run; one rejection ends
// the task as rejected. Credentials may only be supplied by the task's owner, which the visibility must ensure. It
// returns [agentsvc.ErrNotFound] for a task that is not visible and for a call that does not wait,
// [agentsvc.ErrTaskEnded] for a task that has ended, [agentsvc.ErrNoOpenDecision] for a call that was decided before,
// and an [agentsvc.CodeInvalid] for an impossible decision; where that names a wrong call, it lists the calls that
// wait.
func (s *Service) Decide(ctx context.Context, visibility Visibility, id agentsvc.TaskID, by agentsvc.Owner, from audit.Origin, decisions ...DecisionInput) (agentsvc.Task, error) {
	ctx, span := trail.StartSpan(ctx, "decide")
	acc, err := s.accept(ctx, &decisionSource{
		service: s, visibility: visibility, task: id, priority: store.PriorityNormal, batch: decisionBatch{by: by, from: from, decisions: decisions},
	}, false, false)
	trail.EndSpan(span, err)
	if err != nil {
		return agentsvc.Task{}, err
	}
	s.dispatchTurn(acc)
	return acc.task, nil
}

// decisionBatch is a set of decisions that take effect together.
type decisionBatch struct {
	// by is stored in each decision and in the audit entries.
	by        agentsvc.Owner
	from      audit.Origin // for the audit entries
	decisions []DecisionInput
	// message and sent identify the message that brought the decisions; both are empty for the decision endpoint.
	message agentsvc.MessageID
	sent    *store.SentMessage
}

// decisionSource is the source of decisions about a paused task. When nothing remains open, the turn continues in a new
// run. The commit is conditional on the epoch and sequence of the task that was read, so of two concurrent decisions one
// is applied and the other is planned again.
type decisionSource struct {
	service    *Service
	visibility Visibility
	task       agentsvc.TaskID
	priority   store.Priority
	batch      decisionBatch
	// resent is the message that brought the decisions, if one did: where nothing is open, it may be a repeated one.
	resent Submission
	// checkSent is set after a conflict: the message may have been applied meanwhile.
	checkSent bool
}

// plan implements turnSource.
func (d *decisionSource) plan(ctx context.Context, where placement) (turnPlan, error) {
	p, err := d.planDecisions(ctx, where)
	if d.batch.sent == nil || !errors.Is(err, agentsvc.ErrNoOpenDecision) && !errors.Is(err, agentsvc.ErrTaskEnded) {
		return p, err
	}
	earlier, lookErr := d.service.findResent(ctx, d.resent, d.batch.sent)
	switch {
	case lookErr == nil:
		return turnPlan{repeated: &earlier}, nil
	case !errors.Is(lookErr, agentsvc.ErrNotFound):
		return turnPlan{}, lookErr
	}
	return turnPlan{}, err
}

// planDecisions is plan for decisions that were not applied before.
func (d *decisionSource) planDecisions(ctx context.Context, where placement) (turnPlan, error) {
	s := d.service
	t, err := s.findTask(ctx, d.visibility, d.task, store.TaskParts{History: true, Artifacts: true, Approvals: true})
	if err != nil {
		return turnPlan{}, err
	}
	d.batch.sent.SetContext(t.Context)
	if d.checkSent && d.batch.sent != nil {
		if _, _, err := s.store.Tasks.FindSentMessage(ctx, d.batch.by, t.Agent, *d.batch.sent); err == nil {
			return turnPlan{}, agentsvc.ErrNoOpenDecision
		} else if !errors.Is(err, agentsvc.ErrNotFound) {
			return turnPlan{}, err
		}
	}
	r, err := s.resolveDecisions(ctx, t, d.batch)
	if err != nil {
		return turnPlan{}, err
	}
	return s.newDecisionPlan(opening{priority: d.priority, trace: trail.TraceParent(ctx)}, where, t, r), nil
}

// resolveConflict implements turnSource. A run whose session is occupied waits behind the others.
func (d *decisionSource) resolveConflict(ctx context.Context, where placement, err error) (placement, error) {
	d.checkSent = d.checkSent || isLost(err)
	if errors.Is(err, agentsvc.ErrSessionBusy) {
		return d.service.moveToQueue(ctx, where)
	}
	return where, nil
}

// newDecisionPlan returns the plan of decisions r about t. If nothing is open afterwards, the turn continues in a new run
// with the paused run's FirstSeq, so the runner replays that run's journal: recorded model answers and tool results are
// reused, and the agent continues at the decided calls.
func (s *Service) newDecisionPlan(o opening, where placement, t store.StoredTask, r store.DecisionRecord) turnPlan {
	p := turnPlan{seen: t, decisions: &r}
	if last := r.Events[len(r.Events)-1]; last.Status.State == agentsvc.Working {
		p.turn = s.newTurnFactory().nextTurn(o, where, t, t.FirstSeq)
		p.turn.Seq = last.Seq
		r.NextTurn = &p.turn
	}
	return p
}

// resolveDecisions computes what the decisions of b change on t, without writing: the decision events, the approvals
// to close, the sealed credentials and the resulting status (working, still waiting for the rest, or rejected).
func (s *Service) resolveDecisions(ctx context.Context, t store.StoredTask, b decisionBatch) (store.DecisionRecord, error) {
	r := store.DecisionRecord{Sender: b.by, SentMessage: b.sent}
	if t.Status.State.IsTerminal() {
		return r, agentsvc.ErrTaskEnded
	}
	// Decisions are applied one after another, so that a call decided twice in one batch is refused.
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
			s.addDecision(&r, t, a, d, b.from)
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
		open = r.OpenApprovals(open)
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

// resolveDecision returns the open approvals that one input is about and the decision on them, without call, author
// and message. A credential settles all approvals that wait for the same tool's credential.
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
	// Changed arguments are validated in the session of the task's owner, not in the approver's.
	d, err := s.checkDecision(ctx, agentsvc.SessionKey{Owner: t.Owner, Context: t.Context}, a, r)
	return []agentsvc.Approval{a}, d, err
}

// explainMissingCall returns the error for a call that is not open: decided before, named twice in the batch, or
// unknown.
func (s *Service) explainMissingCall(ctx context.Context, t store.StoredTask, open []agentsvc.Approval, call agentsvc.CallID) error {
	if call == "" {
		return agentsvc.ErrNoOpenDecision
	}
	if slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return a.Call.ID == call }) {
		return agentsvc.NewInvalidError("call_id", "%s has two decisions in one message", call)
	}
	decisions, err := s.store.Approvals.ListDecisions(ctx, t.ID)
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

// maxCommentBytes bounds the comment of a decision.
const maxCommentBytes = 10_000

// checkDecision turns an input into a decision. Arguments that the approver changed are validated like those of a
// model. The hash binds the approval to the arguments: the call runs only with exactly these (see
// [agentsvc.Decision.ApplyToCall]).
func (s *Service) checkDecision(ctx context.Context, session agentsvc.SessionKey, a agentsvc.Approval, r DecisionInput) (agentsvc.Decision, error) {
	d := agentsvc.Decision{Call: a.Call.ID, Outcome: r.Outcome, Arguments: r.Arguments, Comment: r.Comment}
	if len(r.Comment) > maxCommentBytes {
		return d, agentsvc.NewInvalidError("comment", "is longer than %d bytes", maxCommentBytes)
	}
	if r.Outcome != agentsvc.OutcomeApproved {
		if r.Arguments != nil {
			return d, agentsvc.NewInvalidError("arguments", "are accepted only with an approval")
		}
		return d, nil
	}
	call := a.Call
	if r.Arguments != nil {
		call.Arguments = r.Arguments
		if s.options.Check != nil {
			if err := s.options.Check(ctx, session, call); err != nil {
				return d, err
			}
		}
	}
	d.Hash = agentsvc.HashArguments(call.Arguments)
	return d, nil
}

// expireApprovals handles a run that the queue woke because an approval's timeout has passed. It rejects or fails the
// task for the expired approvals, or continues a task that waits only for budgets. If nothing is overdue any more,
// because a decision was made or the time extended, the run rests again. It returns [agentsvc.ErrLeaseLost] in all
// these cases, since this run has nothing to execute, and other errors of the database.
func (s *Service) expireApprovals(ctx context.Context, memory *capacity.Reservation, run store.Run) error {
	for {
		t, err := s.store.Tasks.Load(ctx, memory, run.Task, store.TaskParts{Approvals: true})
		if err != nil {
			return err
		}
		if t.Turn != run.Turn || !t.Status.State.IsInterrupted() {
			return agentsvc.ErrLeaseLost
		}
		if waitsOnlyForBudgets(t) {
			return s.resumeWithinBudget(ctx, run, t)
		}
		late, err := s.store.Approvals.ListOverdue(ctx, run.Task)
		if err != nil {
			return err
		}
		r, status := s.resolveOverdue(t, late)
		if len(r.ClosedApprovals) == 0 {
			return errors.Join(agentsvc.ErrLeaseLost, s.store.Runs.Unclaim(ctx, run))
		}
		appendStatus(&r, t, status)
		switch err = s.store.Approvals.RecordDecisions(ctx, t, r); {
		case err == nil:
			s.hub.publishEvents(s.newTopicKey(t.ID), r.Events...)
			return agentsvc.ErrLeaseLost
		case !isLost(err) || ctx.Err() != nil:
			return err
		}
	}
}

// resolveOverdue returns the decisions and the status that follow from t's expired approvals, whose sequences are
// late: a call without a decision rejects the task; if only credentials are missing, it fails.
func (s *Service) resolveOverdue(t store.StoredTask, late []int64) (r store.DecisionRecord, status agentsvc.Status) {
	state := agentsvc.Failed
	var why []string
	var tools []any
	for _, a := range t.Approvals {
		if !slices.Contains(late, a.Seq) {
			continue
		}
		s.addDecision(&r, t, a, agentsvc.Decision{Call: a.Call.ID, Outcome: agentsvc.OutcomeExpired}, audit.Origin{})
		tools = append(tools, a.Credential.Tool)
		reason := fmt.Sprintf("Nobody supplied the credential for %s within %v.", a.Credential.Tool, a.Timeout)
		if a.NeedsDecision() {
			state = agentsvc.Rejected
			reason = fmt.Sprintf("Nobody decided about the call of %s within %v.", a.Call.Name, a.Timeout)
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	status = newStatus(t.ID, state, why)
	if state == agentsvc.Failed {
		setFailure(&status, agentsvc.Failure{Code: agentsvc.FailurePrecondition, Details: map[string]any{"credentials": tools}})
	}
	return r, status
}

// addDecision adds the decision about one approval to r: audit entry, closed approval and event.
func (s *Service) addDecision(r *store.DecisionRecord, t store.StoredTask, a agentsvc.Approval, d agentsvc.Decision, from audit.Origin) {
	r.AuditEntries = append(r.AuditEntries, s.newDecisionEntry(t, a, d, from))
	r.ClosedApprovals = append(r.ClosedApprovals, a.Seq)
	r.Events = append(r.Events, agentsvc.Event{Frame: a.Frame, Decision: &d})
}

// appendStatus adds the resulting status to r and numbers its events after t's last one.
func appendStatus(r *store.DecisionRecord, t store.StoredTask, status agentsvc.Status) {
	r.Events = append(r.Events, agentsvc.Event{Status: &status})
	for i, ev := range r.Events {
		r.Events[i] = stampEvent(t.ID, t.Seq+1+int64(i), ev)
	}
}

// newStatus returns a status whose message consists of the given sentences.
func newStatus(id agentsvc.TaskID, state agentsvc.State, sentences []string) agentsvc.Status {
	return agentsvc.Status{State: state, Message: &agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent,
		Parts: []agentsvc.Part{agentsvc.TextPart(strings.Join(sentences, " "))},
	}}
}

// setFailure sets why a task failed in the metadata of s, a status of newStatus.
func setFailure(s *agentsvc.Status, f agentsvc.Failure) {
	s.Message.Metadata = map[string]any{agentsvc.FailureKey: f.ToMetadata()}
}

// formatReason returns a comment as the end of a sentence, "" if there is none.
func formatReason(comment string) string {
	if comment = strings.TrimSpace(comment); comment == "" {
		return ""
	}
	return ": " + comment
}
