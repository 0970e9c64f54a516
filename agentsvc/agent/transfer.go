package agent

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"stoa/agentsvc"
)

// maxTransfers bounds the transfers of one turn where [Reasoning.MaxTransfers] is 0, so that agents that hand control
// to each other end.
const maxTransfers = 10

// TooManyTransfersError reports that the agents of a turn handed control over more often than [Reasoning.MaxTransfers].
// It ends the whole turn: the model that asked for the transfer would only ask again.
type TooManyTransfersError struct{ Max int }

// Error implements [error].
func (e *TooManyTransfersError) Error() string {
	return fmt.Sprintf("the agents have handed control over to each other %d times without an answer, the most that one turn may", e.Max)
}

// transferCounter counts the transfers of a turn. The first agent of the turn that can transfer control creates it, and
// all agents below share it, also concurrently. A later attempt counts the transfers that are still open again: they are
// the ones that can go in a circle.
type transferCounter struct {
	max   int
	count atomic.Int64
}

// addTransfer counts a transfer. It returns a [*TooManyTransfersError] for one too many.
func (c *transferCounter) addTransfer() error {
	if c.count.Add(1) > int64(c.max) {
		return &TooManyTransfersError{c.max}
	}
	return nil
}

// Reference stands for an agent that is not built yet: agents that transfer control to each other refer to each other.
type Reference struct {
	// Target is set before the first Run, then read-only.
	Target Agent
}

// Run implements [Agent].
func (r *Reference) Run(ctx context.Context, inv Invocation) iter.Seq2[agentsvc.Event, error] {
	return r.Target.Run(ctx, inv)
}
