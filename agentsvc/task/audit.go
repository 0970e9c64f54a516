package task

import (
	"cmp"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/audit"
)

// Audit entries about tasks say who decided what. Texts of the tenant, such as tool arguments and ids chosen by
// callers, appear only as keyed hashes (see [Options].Hash): audit entries outlive the task and the tenant, its texts
// must not.

// decisionActions are the audit actions of human decisions.
var decisionActions = map[agentsvc.DecisionOutcome]string{
	agentsvc.OutcomeApproved: "approval.approve", agentsvc.OutcomeRejected: "approval.reject", agentsvc.OutcomeSupplied: "credential.supply",
}

// newDecisionEntry returns the audit entry of a decision about one of t's approvals. Changed arguments are recorded
// as two hashes, before and after.
func newDecisionEntry(hash func(text []byte) string, t store.StoredTask, a agentsvc.Approval, d agentsvc.Decision, from audit.Origin) audit.Entry {
	detail := map[string]any{"task": string(t.ID), "agent": t.Agent, "call": string(a.Call.ID), "tool": a.Call.Name}
	if a.Frame != "" {
		detail["frame"] = a.Frame
	}
	switch {
	case !a.NeedsDecision():
		detail["server"], detail["header"] = a.Credential.Server, a.Credential.Header
	case d.Arguments != nil:
		detail["before"] = map[string]any{"arguments": hash([]byte(agentsvc.HashArguments(a.Call.Arguments)))}
		detail["after"] = map[string]any{"arguments": hash([]byte(d.Hash))}
	default:
		detail["kind"], detail["arguments"] = string(a.Kind), hash([]byte(agentsvc.HashArguments(a.Call.Arguments)))
	}
	switch {
	case d.Outcome == agentsvc.OutcomeExpired && !a.NeedsDecision():
		return audit.Entry{Actor: audit.System, Action: "credential.expire", Detail: detail}
	case d.Outcome == agentsvc.OutcomeExpired:
		return audit.Entry{Actor: audit.System, Action: "approval.expire", Detail: detail}
	}
	return audit.Entry{Actor: audit.NewUserActor(d.By, from), Action: decisionActions[d.Outcome], Detail: detail}
}

// newBudgetResumeEntry returns the audit entry of a task that continues because its budget has capacity again, with the
// reason: the budget was deleted, was changed since the pause, or has capacity for another reason, such as a new window.
func newBudgetResumeEntry(t store.StoredTask, a agentsvc.Approval, r BudgetChange) audit.Entry {
	detail := map[string]any{"task": string(t.ID), "agent": t.Agent, "budget": a.Call.Name, "waited_since": a.At.UTC().Format(time.RFC3339Nano)}
	switch {
	case r.ChangedAt.IsZero():
		detail["because"] = "the budget is gone"
	case r.ChangedAt.After(a.At) && r.ChangedBy != "":
		detail["because"], detail["changed_by"], detail["changed_at"] = "the budget was changed", r.ChangedBy, r.ChangedAt.UTC().Format(time.RFC3339Nano)
	default:
		detail["because"] = "the budget allows it again"
	}
	return audit.Entry{Actor: audit.System, Action: "task.resume", Detail: detail}
}

// newTurnReceiverEntries returns the audit entry of a receiver that came with a run's message, none if there was none.
func newTurnReceiverEntries(hash func(text []byte) string, turn store.NewTurn, from audit.Origin) []audit.Entry {
	if turn.Receiver == nil {
		return nil
	}
	return newReceiverEntries(hash, Visibility{Owner: &turn.Owner}, from, "notification.set", turn.Task, cmp.Or(turn.Receiver.ID, string(turn.Task)))
}

// newReceiverEntries returns the audit entry of a receiver that a task's owner set or removed. The receiver's address
// is not recorded. A visibility that is not limited to an owner names no actor: then there is no entry.
func newReceiverEntries(hash func(text []byte) string, visibility Visibility, from audit.Origin, action string, id agentsvc.TaskID, receiver string) []audit.Entry {
	if visibility.Owner == nil {
		return nil
	}
	return []audit.Entry{{
		Actor: audit.NewUserActor(*visibility.Owner, from), Action: action, Detail: map[string]any{"task": string(id), "config": hash([]byte(receiver))},
	}}
}
