package task

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/vault"
	"stoa/agentsvc/trail"
	"stoa/tenancy/audit"
)

// Decisions settles the approvals of a tenant's tasks.
type Decisions struct {
	turns     *pipeline
	reader    *Reader
	approvals *store.Approvals
	// check and vault are those of [Options].
	check func(ctx context.Context, session agentsvc.SessionKey, call agentsvc.ToolCall) error
	vault *vault.Vault
	hash  func(text []byte) string
}

// Decide settles tool calls of a task that wait for a human; by is the principal who decides or supplies a credential,
// from is where the request came from. When all are settled the paused turn continues in a new run; one rejection ends
// the task as rejected. Credentials may only be supplied by the task's owner, which the visibility must ensure. It
// returns [agentsvc.ErrNotFound] for a task that is not visible and for a call that does not wait,
// [agentsvc.ErrTaskEnded] for a task that has ended, [agentsvc.ErrNoOpenDecision] for a call that was decided before,
// and an [agentsvc.CodeInvalid] for an impossible decision; where that names a wrong call, it lists the calls that
// wait.
//
// The new run is written by [store.Approvals.RecordDecisions] in the transaction of the decisions, and dispatched to
// queue.Pool. Its worker calls runner.Runner.Run, which reads the decisions from the log (replayJournal) and passes them
// to the agent in agent.Invocation.CallStates; the agent runs the approved calls in toolCalls.resumeCalls. A message with
// decisions ([Messages.Submit]) takes the same path from decisionSource on.
func (d *Decisions) Decide(ctx context.Context, visibility Visibility, id agentsvc.TaskID, by agentsvc.Owner, from audit.Origin, decisions ...DecisionInput) (agentsvc.Task, error) {
	ctx, span := trail.StartSpan(ctx, "decide")
	acc, err := d.turns.accept(ctx, &decisionSource{
		decisions: d, visibility: visibility, task: id, priority: store.PriorityNormal, batch: decisionBatch{by: by, from: from, decisions: decisions},
	}, acceptOptions{})
	trail.EndSpan(span, err)
	if err != nil {
		return agentsvc.Task{}, err
	}
	d.turns.dispatch(acc)
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
	decisions  *Decisions
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
	earlier, lookErr := d.decisions.reader.findSentTurn(ctx, d.resent, d.batch.sent)
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
	t, err := d.decisions.reader.findTask(ctx, d.visibility, d.task, store.TaskParts{History: true, Artifacts: true, Approvals: true})
	if err != nil {
		return turnPlan{}, err
	}
	d.batch.sent.SetContext(t.Context)
	if d.checkSent && d.batch.sent != nil {
		if _, _, err := d.decisions.reader.tasks.FindSentMessage(ctx, d.batch.by, t.Agent, *d.batch.sent); err == nil {
			return turnPlan{}, agentsvc.ErrNoOpenDecision
		} else if !errors.Is(err, agentsvc.ErrNotFound) {
			return turnPlan{}, err
		}
	}
	r, err := d.decisions.resolve(ctx, t, d.batch)
	if err != nil {
		return turnPlan{}, err
	}
	// The turn goes on for its caller, who may be another user than the one who decides.
	roles, err := d.decisions.turns.store.Runs.LoadRoles(ctx, t.ID)
	if err != nil {
		return turnPlan{}, err
	}
	return d.decisions.turns.newDecisionPlan(opening{priority: d.priority, trace: trail.TraceParent(ctx), roles: roles}, where, t, r), nil
}

// resolveConflict implements turnSource. A run whose session is occupied waits behind the others.
func (d *decisionSource) resolveConflict(ctx context.Context, where placement, err error) (placement, error) {
	d.checkSent = d.checkSent || errors.Is(err, agentsvc.ErrTaskChanged)
	if errors.Is(err, agentsvc.ErrSessionBusy) {
		return d.decisions.turns.moveToQueue(ctx, where)
	}
	return where, nil
}

// newDecisionPlan returns the plan of decisions r about t. If nothing is open afterwards, the turn continues in a new run
// with the paused run's FirstSeq, so the runner replays that run's journal: recorded model answers and tool results are
// reused, and the agent continues at the decided calls.
func (f turnFactory) newDecisionPlan(o opening, where placement, t store.StoredTask, r store.DecisionRecord) turnPlan {
	p := turnPlan{seen: t, decisions: &r}
	if last := r.Events[len(r.Events)-1]; last.Status.State == agentsvc.Working {
		turn := f.nextTurn(o, where, t, t.FirstSeq)
		turn.Seq = last.Seq
		p.turn, r.NextTurn = turn, &turn
	}
	return p
}

// resolve computes what the decisions of b change on t, without writing: the decision events, the approvals
// to close, the sealed credentials and the resulting status (working, still waiting for the rest, or rejected).
func (d *Decisions) resolve(ctx context.Context, t store.StoredTask, b decisionBatch) (store.DecisionRecord, error) {
	r := store.DecisionRecord{Sender: b.by, SentMessage: b.sent}
	if t.Status.State.IsTerminal() {
		return r, agentsvc.ErrTaskEnded
	}
	// Decisions are applied one after another, so that a call decided twice in one batch is refused.
	open := slices.Clone(t.Approvals)
	var rejected []string
	for _, input := range b.decisions {
		about, decision, err := d.resolveDecision(ctx, t, open, input)
		if err != nil {
			return r, err
		}
		decision.By, decision.Message = b.by, b.message
		for _, a := range about {
			decision.Call = a.Call.ID
			addDecision(d.hash, &r, t, a, decision, b.from)
			if decision.Outcome == agentsvc.OutcomeRejected {
				rejected = append(rejected, fmt.Sprintf("The call of %s was rejected%s.", a.Call.Name, formatReason(decision.Comment)))
			}
		}
		if decision.Outcome == agentsvc.OutcomeSupplied {
			sealed, err := d.vault.SealCredential(t.Owner, about[0].Credential, input.Value)
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
func (d *Decisions) resolveDecision(ctx context.Context, t store.StoredTask, open []agentsvc.Approval, r DecisionInput) ([]agentsvc.Approval, agentsvc.Decision, error) {
	if r.Outcome == agentsvc.OutcomeSupplied {
		about, err := findCredentialApprovals(t.Approvals, open, r.Tool)
		return about, agentsvc.Decision{Outcome: agentsvc.OutcomeSupplied}, err
	}
	a, err := findApproval(open, r.Call)
	if errors.Is(err, agentsvc.ErrNotFound) {
		err = d.explainMissingCall(ctx, t, open, r.Call)
	}
	if err != nil {
		return nil, agentsvc.Decision{}, err
	}
	// Changed arguments are validated in the session of the task's owner, not in the approver's.
	decision, err := d.checkDecision(ctx, agentsvc.SessionKey{Owner: t.Owner, Context: t.Context}, a, r)
	return []agentsvc.Approval{a}, decision, err
}

// explainMissingCall returns the error for a call that is not open: decided before, named twice in the batch, or
// unknown.
func (d *Decisions) explainMissingCall(ctx context.Context, t store.StoredTask, open []agentsvc.Approval, call agentsvc.CallID) error {
	if call == "" {
		return agentsvc.ErrNoOpenDecision
	}
	if slices.ContainsFunc(t.Approvals, func(a agentsvc.Approval) bool { return a.Call.ID == call }) {
		return agentsvc.NewInvalidError("call_id", "%s has two decisions in one message", call)
	}
	decisions, err := d.approvals.ListDecisions(ctx, t.ID)
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
func (d *Decisions) checkDecision(ctx context.Context, session agentsvc.SessionKey, a agentsvc.Approval, r DecisionInput) (agentsvc.Decision, error) {
	decision := agentsvc.Decision{Call: a.Call.ID, Outcome: r.Outcome, Arguments: r.Arguments, Comment: r.Comment}
	if len(r.Comment) > maxCommentBytes {
		return decision, agentsvc.NewInvalidError("comment", "is longer than %d bytes", maxCommentBytes)
	}
	if r.Outcome != agentsvc.OutcomeApproved {
		if r.Arguments != nil {
			return decision, agentsvc.NewInvalidError("arguments", "are accepted only with an approval")
		}
		return decision, nil
	}
	call := a.Call
	if r.Arguments != nil {
		call.Arguments = r.Arguments
		if d.check != nil {
			if err := d.check(ctx, session, call); err != nil {
				return decision, err
			}
		}
	}
	decision.Hash = agentsvc.HashArguments(call.Arguments)
	return decision, nil
}

// addDecision adds the decision about one approval to r: audit entry, closed approval and event.
func addDecision(hash func(text []byte) string, r *store.DecisionRecord, t store.StoredTask, a agentsvc.Approval, d agentsvc.Decision, from audit.Origin) {
	r.AuditEntries = append(r.AuditEntries, newDecisionEntry(hash, t, a, d, from))
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
