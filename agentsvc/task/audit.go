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

// actions are what decisions of people are called there.
var actions = map[agentsvc.Verdict]string{
	agentsvc.Approve: "approval.approve", agentsvc.Reject: "approval.reject", agentsvc.Supply: "credential.supply",
}

// decidedOn is the entry of a decision about one of t's approvals.
func (s *Service) decidedOn(t store.Stored, a agentsvc.Approval, d agentsvc.Decision) tenancy.Entry {
	detail := map[string]any{"task": string(t.ID), "agent": t.Agent, "call": string(a.Call.ID), "tool": a.Call.Name}
	if a.Frame != "" {
		detail["frame"] = a.Frame
	}
	switch {
	case !a.Decidable():
		detail["server"], detail["header"] = a.Credential.Server, a.Credential.Header
	case d.Arguments != nil:
		detail["before"] = map[string]any{"arguments": s.hash(agentsvc.HashArguments(a.Call.Arguments))}
		detail["after"] = map[string]any{"arguments": s.hash(d.Hash)}
	default:
		detail["kind"], detail["arguments"] = string(a.Kind), s.hash(agentsvc.HashArguments(a.Call.Arguments))
	}
	switch {
	case d.Verdict == agentsvc.Expire && !a.Decidable():
		return tenancy.Entry{Actor: tenancy.System, Action: "credential.expire", Detail: detail}
	case d.Verdict == agentsvc.Expire:
		return tenancy.Entry{Actor: tenancy.System, Action: "approval.expire", Detail: detail}
	}
	return entryBy(d.By, actions[d.Verdict], detail)
}

// relieved is the entry about a task that goes on because the budget that it waited for has room again.
func relieved(t store.Stored, a agentsvc.Approval, r Relief) tenancy.Entry {
	detail := map[string]any{"task": string(t.ID), "agent": t.Agent, "budget": a.Call.Name, "waited_since": a.At.UTC().Format(time.RFC3339Nano)}
	switch {
	case r.ChangedAt.IsZero():
		detail["because"] = "the budget is gone"
	case r.ChangedAt.After(a.At) && r.ChangedBy != "":
		detail["because"], detail["changed_by"], detail["changed_at"] = "the budget was changed", r.ChangedBy, r.ChangedAt.UTC().Format(time.RFC3339Nano)
	default:
		detail["because"] = "the budget has room again"
	}
	return tenancy.Entry{Actor: tenancy.System, Action: "task.resume", Detail: detail}
}

// setWith is the entry about an address that came with the message of a run, if one did.
func (s *Service) setWith(run store.Run) []tenancy.Entry {
	if run.Receiver == nil {
		return nil
	}
	return s.setBy(Reach{Owner: &run.Owner}, "notification.set", run.Task, cmp.Or(run.Receiver.ID, string(run.Task)))
}

// setBy is the entry about an address that a task's owner has told of it, or no longer. Where that is is not said.
func (s *Service) setBy(reach Reach, action string, id agentsvc.TaskID, receiver string) []tenancy.Entry {
	if reach.Owner == nil {
		return nil
	}
	return []tenancy.Entry{entryBy(*reach.Owner, action, map[string]any{"task": string(id), "config": s.hash(receiver)})}
}

// hash returns the keyed hash of a text, "" where there is no key.
func (s *Service) hash(text string) string {
	if s.o.Hash == nil {
		return ""
	}
	return s.o.Hash([]byte(text))
}

// entryBy is an entry of what a user of the app did.
func entryBy(by agentsvc.Owner, action string, detail map[string]any) tenancy.Entry {
	return tenancy.Entry{Actor: by.Subject, Issuer: by.Issuer, Action: action, Detail: detail}
}
