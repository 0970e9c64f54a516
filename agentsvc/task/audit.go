package task

import (
	"cmp"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy"
)

// What stands on the audit trail of tasks: who decided about what. Texts of the app's, such as arguments of tools and the ids
// that callers give, are told by their keyed hashes (see [Options].Hash): they stand on the task's log and go with it.

// decisionActions are what decisions of people are called there.
var decisionActions = map[agentsvc.DecisionOutcome]string{
	agentsvc.OutcomeApproved: "approval.approve", agentsvc.OutcomeRejected: "approval.reject", agentsvc.OutcomeSupplied: "credential.supply",
}

// newDecisionEntry is the entry of a decision about one of t's approvals.
func (s *Service) newDecisionEntry(t store.StoredTask, a agentsvc.Approval, d agentsvc.Decision) tenancy.AuditEntry {
	detail := map[string]any{"task": string(t.ID), "agent": t.Agent, "call": string(a.Call.ID), "tool": a.Call.Name}
	if a.Frame != "" {
		detail["frame"] = a.Frame
	}
	switch {
	case !a.NeedsDecision():
		detail["server"], detail["header"] = a.Credential.Server, a.Credential.Header
	case d.Arguments != nil:
		detail["before"] = map[string]any{"arguments": s.hashText(agentsvc.HashArguments(a.Call.Arguments))}
		detail["after"] = map[string]any{"arguments": s.hashText(d.Hash)}
	default:
		detail["kind"], detail["arguments"] = string(a.Kind), s.hashText(agentsvc.HashArguments(a.Call.Arguments))
	}
	switch {
	case d.Outcome == agentsvc.OutcomeExpired && !a.NeedsDecision():
		return tenancy.AuditEntry{Actor: tenancy.System, Action: "credential.expire", Detail: detail}
	case d.Outcome == agentsvc.OutcomeExpired:
		return tenancy.AuditEntry{Actor: tenancy.System, Action: "approval.expire", Detail: detail}
	}
	return newUserEntry(d.By, decisionActions[d.Outcome], detail)
}

// newBudgetResumeEntry is the entry about a task that goes on because the budget that it waited for has room again.
func newBudgetResumeEntry(t store.StoredTask, a agentsvc.Approval, r BudgetChange) tenancy.AuditEntry {
	detail := map[string]any{"task": string(t.ID), "agent": t.Agent, "budget": a.Call.Name, "waited_since": a.At.UTC().Format(time.RFC3339Nano)}
	switch {
	case r.ChangedAt.IsZero():
		detail["because"] = "the budget is gone"
	case r.ChangedAt.After(a.At) && r.ChangedBy != "":
		detail["because"], detail["changed_by"], detail["changed_at"] = "the budget was changed", r.ChangedBy, r.ChangedAt.UTC().Format(time.RFC3339Nano)
	default:
		detail["because"] = "the budget has room again"
	}
	return tenancy.AuditEntry{Actor: tenancy.System, Action: "task.resume", Detail: detail}
}

// newRunReceiverEntries is the entry about an address that came with the message of a run, if one did.
func (s *Service) newRunReceiverEntries(run store.Run) []tenancy.AuditEntry {
	if run.Receiver == nil {
		return nil
	}
	return s.newReceiverEntries(Visibility{Owner: &run.Owner}, "notification.set", run.Task, cmp.Or(run.Receiver.ID, string(run.Task)))
}

// newReceiverEntries is the entry about an address that a task's owner has told of it, or no longer. Where that is is not said.
func (s *Service) newReceiverEntries(visibility Visibility, action string, id agentsvc.TaskID, receiver string) []tenancy.AuditEntry {
	if visibility.Owner == nil {
		return nil
	}
	return []tenancy.AuditEntry{newUserEntry(*visibility.Owner, action, map[string]any{"task": string(id), "config": s.hashText(receiver)})}
}

// hashText returns the keyed hash of a text, "" where there is no key.
func (s *Service) hashText(text string) string {
	if s.options.Hash == nil {
		return ""
	}
	return s.options.Hash([]byte(text))
}

// newUserEntry is an entry of what a user of the app did.
func newUserEntry(by agentsvc.Owner, action string, detail map[string]any) tenancy.AuditEntry {
	return tenancy.AuditEntry{Actor: by.Subject, Issuer: by.Issuer, Action: action, Detail: detail}
}
