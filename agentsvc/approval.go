package agentsvc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// ApprovalKind is what a tool call waits for.
type ApprovalKind string

// The kinds of approvals.
const (
	// ApproveCall is a call of a tool that runs only after a human has agreed.
	ApproveCall ApprovalKind = "call"
	// ApproveRerun is a call that was interrupted. Whether it took effect is unknown, and its tool is not declared
	// idempotent, so a human decides whether it may run again.
	ApproveRerun ApprovalKind = "rerun"
	// SupplyCredential is a call whose tool sends a credential of the task's owner, which the owner has not supplied.
	SupplyCredential ApprovalKind = "credential"
	// AwaitBudget is not about a tool: the next model call waits until its budget has capacity again.
	AwaitBudget ApprovalKind = "budget"
)

// Approval is a request that a paused task waits for: a decision about a tool call, a credential or a budget. Where
// even listing a server's tools needs a credential, Call is not one that a model made and has no arguments.
type Approval struct {
	Call       ToolCall
	Kind       ApprovalKind
	Prompt     string        // shown to the human
	Timeout    time.Duration // after which the task ends (budget: is checked again); 0 = none
	Credential Credential    // the requested one; zero for other kinds

	// Seq, Frame and At are those of the event that opened the approval.
	Seq   int64
	Frame string
	At    time.Time
}

// NeedsDecision reports whether a waits for a human's decision, not for a credential or a budget.
func (a Approval) NeedsDecision() bool { return a.Kind != SupplyCredential && a.Kind != AwaitBudget }

// WaitingState returns the state of a task that waits for the approvals: [AuthRequired] if all are about credentials,
// else [InputRequired].
func WaitingState(approvals []Approval) State {
	if slices.ContainsFunc(approvals, func(a Approval) bool { return a.Kind != SupplyCredential }) {
		return InputRequired
	}
	return AuthRequired
}

// DecisionOutcome is how an approval was settled.
type DecisionOutcome string

// The outcomes. Their values are stored and are part of the API.
const (
	OutcomeApproved DecisionOutcome = "approve"
	OutcomeRejected DecisionOutcome = "reject"
	OutcomeExpired  DecisionOutcome = "expire" // the timeout passed without a decision
	OutcomeSupplied DecisionOutcome = "supply" // the credential was supplied
)

// Decision settles an approval. By and Message are empty where a timeout or a budget settled it.
type Decision struct {
	Call    CallID
	Outcome DecisionOutcome
	By      Owner
	// Message is the message that brought the decision; "" = none.
	Message MessageID
	// Arguments replace the call's own where the approver changed them; else nil.
	Arguments json.RawMessage
	// Hash is [HashArguments] of the arguments that were approved.
	Hash    string
	Comment string
}

// ApplyToCall returns the call with the arguments that d lets it run with, and whether it may run. It may not if d is
// no approval or if the hash of the arguments is not the approved one: what runs is exactly what the human has seen.
func (d Decision) ApplyToCall(c ToolCall) (ToolCall, bool) {
	if d.Arguments != nil {
		c.Arguments = d.Arguments
	}
	return c, d.Outcome == OutcomeApproved && d.Hash == HashArguments(c.Arguments)
}

// HashArguments returns the SHA-256 of a call's arguments in hex. The arguments are decoded and encoded again before,
// so that equal JSON values have equal hashes whatever their formatting. Missing arguments are {}. Arguments that are
// not JSON are hashed as they are.
func HashArguments(arguments json.RawMessage) string {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
	// Numbers keep their digits: as float64 two different integers could become equal.
	d.UseNumber()
	var value any
	if d.Decode(&value) == nil {
		if canonical, err := json.Marshal(value); err == nil {
			arguments = canonical
		}
	}
	sum := sha256.Sum256(arguments)
	return hex.EncodeToString(sum[:])
}
