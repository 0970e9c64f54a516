package agentsvc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// ApprovalKind says what a tool call waits for.
type ApprovalKind string

// The kinds of approvals.
const (
	// ApproveCall is a tool that runs only when a human agrees.
	ApproveCall ApprovalKind = "call"
	// ApproveRerun is a tool whose call was interrupted: whether it took effect is unknown, and it may not simply run
	// again.
	ApproveRerun ApprovalKind = "rerun"
	// SupplyCredential is a tool that sends a credential of its caller's own, which is not there.
	SupplyCredential ApprovalKind = "credential"
	// AwaitBudget is no tool: a model cannot be called until its budget has room again.
	AwaitBudget ApprovalKind = "budget"
)

// Approval is a tool call that waits for a human: for a decision, or for its caller's credential. Where the tools of a
// server cannot even be listed without one, the call is none that a model has asked for, and has no arguments.
type Approval struct {
	Call       ToolCall
	Kind       ApprovalKind
	Prompt     string        // what the human is asked
	Timeout    time.Duration // after which the task ends; 0 = it waits for as long as it takes
	Credential Credential    // that is to be supplied; zero for other kinds

	// Seq, Frame and At are those of the event that tells of it.
	Seq   int64
	Frame string
	At    time.Time
}

// NeedsDecision reports whether a waits for a decision, which is made for or against the call.
func (a Approval) NeedsDecision() bool { return a.Kind != SupplyCredential && a.Kind != AwaitBudget }

// WaitingState is where a task stands that waits for approvals: as long as one of them is more than a credential, that is
// [InputRequired].
func WaitingState(approvals []Approval) State {
	if slices.ContainsFunc(approvals, func(a Approval) bool { return a.Kind != SupplyCredential }) {
		return InputRequired
	}
	return AuthRequired
}

// DecisionOutcome is what came of an approval.
type DecisionOutcome string

// The verdicts.
const (
	OutcomeApproved DecisionOutcome = "approve"
	OutcomeRejected DecisionOutcome = "reject"
	OutcomeExpired  DecisionOutcome = "expire" // nobody decided in time
	OutcomeSupplied DecisionOutcome = "supply" // the credential is there
)

// Decision is what somebody decided about an approval. Hash is of the arguments that the tool may run with: those it
// was asked for, or Arguments where the approver changed them. By and Message are empty where nobody decided.
type Decision struct {
	Call      CallID
	Outcome   DecisionOutcome
	By        Owner
	Message   MessageID // that brought it, "" = none
	Arguments json.RawMessage
	Hash      string
	Comment   string
}

// ApplyToCall returns the call as d lets it run, and whether d lets it run at all: it does not if the arguments are
// not those that were approved.
func (d Decision) ApplyToCall(c ToolCall) (ToolCall, bool) {
	if d.Arguments != nil {
		c.Arguments = d.Arguments
	}
	return c, d.Outcome == OutcomeApproved && d.Hash == HashArguments(c.Arguments)
}

// HashArguments returns the SHA-256 of a call's arguments in hex. Arguments that are the same JSON have the same hash,
// however they are written.
func HashArguments(arguments json.RawMessage) string {
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(arguments))
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
