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

// Decidable reports whether a waits for a decision, which is made for or against the call.
func (a Approval) Decidable() bool { return a.Kind != SupplyCredential }

// Waiting is where a task stands that waits for approvals. As long as one of them can be decided against, which ends the
// task as rejected, that is [InputRequired].
func Waiting(approvals []Approval) State {
	if slices.ContainsFunc(approvals, Approval.Decidable) {
		return InputRequired
	}
	return AuthRequired
}

// Verdict is what came of an approval.
type Verdict string

// The verdicts.
const (
	Approve Verdict = "approve"
	Reject  Verdict = "reject"
	Expire  Verdict = "expire" // nobody decided in time
	Supply  Verdict = "supply" // the credential is there
)

// Decision is what somebody decided about an approval. Hash is of the arguments that the tool may run with: those it
// was asked for, or Arguments where the approver changed them. By and Message are empty where nobody decided.
type Decision struct {
	Call      CallID
	Verdict   Verdict
	By        Owner
	Message   MessageID // that brought it, "" = none
	Arguments json.RawMessage
	Hash      string
	Comment   string
}

// Settle returns the call as d lets it run, and whether d lets it run at all: it does not if the arguments are
// not those that were approved.
func (d Decision) Settle(c ToolCall) (ToolCall, bool) {
	if d.Arguments != nil {
		c.Arguments = d.Arguments
	}
	return c, d.Verdict == Approve && d.Hash == HashArguments(c.Arguments)
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
