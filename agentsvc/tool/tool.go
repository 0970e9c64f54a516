// Package tool is the seam to what agents can do: a [Tool] runs a call, a [Set] holds an agent's tools and sees that
// a call ends: in time, with arguments its schema allows, with an output that is not too long, and never in a panic.
// The folders below hold one kind each.
package tool

import (
	"context"
	"encoding/json"

	"stoa/agentsvc"
)

// Tool is something an agent can call. It is safe for concurrent use.
type Tool interface {
	Spec() agentsvc.ToolSpec
	// Call runs the tool and returns what the model reads. An error's text is shown to the model as well, so it
	// holds nothing secret; the run goes on.
	Call(ctx context.Context, in Input) (string, error)
	// IsIdempotent reports whether a call whose outcome a crash left unknown may simply run again.
	IsIdempotent() bool
}

// Input is one call's arguments, a JSON object that fits the tool's schema, and the step it belongs to: the same for
// each repetition of the same call, so that the other side can recognise it.
type Input struct {
	Step      string
	Arguments json.RawMessage
}
