// Package tool is the interface to what agents can do. A [Tool] runs one call; a [Set] holds the tools of an agent and
// guarantees that each call ends: within its time, with arguments that fit the tool's schema, with a bounded output,
// and never in a panic. The folders below hold one kind of tool each: function (built in), command (programs of the
// host), mcp (servers).
//
// A call goes through [Set.Call]: find the tool, check the arguments, check the lease, run it with a timeout,
// trim the output. Everything that goes wrong becomes a text for the model, and the turn goes on. Only two things leave
// the set as values: a [*CredentialError], for which the agent asks the caller, and [ApprovalOptions], which the agent
// reads before a call.
//
// Tools of servers are not known when a revision is built: a [Source] lists them at the start of each turn
// ([Set.LoadLiveSet]).
package tool

import (
	"context"
	"encoding/json"

	"stoa/agentsvc"
)

// Tool is something that an agent can call. Implementations are safe for concurrent use.
type Tool interface {
	// Spec describes the tool to the model. It never changes.
	Spec() agentsvc.ToolSpec
	// Call runs the tool and returns the text that the model reads. The text of an error is shown to the model too, so
	// it must hold nothing secret.
	Call(ctx context.Context, in Call) (string, error)
	// IsIdempotent reports whether a call with unknown outcome may be repeated. After a crash, such a call runs again;
	// for any other the agent asks a human.
	IsIdempotent() bool
}

// Call is one call. Arguments is a JSON object that fits the tool's schema. Step is the same for each repetition of the
// call, so that the other side can recognise it (idempotency key).
type Call struct {
	agentsvc.RunScope
	Step      string
	Arguments json.RawMessage
}

// TruncationMark ends the text of a result that was longer than its tool may answer with.
const TruncationMark = "\n[cut here: the result is longer]"
