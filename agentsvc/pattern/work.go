package pattern

import (
	"context"
	"errors"
	"math"
	"runtime"

	"stoa/agentsvc/processor"
)

// What matching may cost: a step looks at one character in one state of a pattern, and takes some 10 ns.
const (
	// BaseSteps is the budget of one judgement, to which StepsPerByte comes for each byte that is looked at. A usual
	// pattern takes one to seven steps for a byte.
	BaseSteps    = 8 << 20
	StepsPerByte = 16
	// SliceSteps is the most steps between two looks at the context, at which others get the processor: less than
	// a millisecond. One character may add the steps of all states of a pattern to it.
	SliceSteps = 16 << 10
)

// ErrTooMuch reports that the budget of a [Work] is used up.
var ErrTooMuch = errors.New("it takes more work to check than is allowed")

// Work pays for matching: it counts steps, and fails once they exceed its budget or its context has ended. It is a value
// of one judgement and not safe for concurrent use.
type Work struct {
	ctx    context.Context
	whole  *Work // that this is a part of, nil = none
	spent  int64
	passed int64 // of spent, what whole has counted
	most   int64
	next   int64 // the steps at which the context is looked at next
	last   *Work // the part that was made last
	depth  int   // of calls of Begin without End
	turn   bool  // it has one of the process's turns
	err    error
}

// NewWork returns the work of judging size bytes.
func NewWork(ctx context.Context, size int) *Work {
	return &Work{ctx: ctx, most: BaseSteps + StepsPerByte*int64(size), next: SliceSteps}
}

// Part returns the work of judging one part of size bytes. It has a budget of its own, so that the verdict on a part does
// not depend on the others, and counts towards w as well.
func (w *Work) Part(size int) *Work {
	if w.last != nil {
		_ = w.last.pass() // w keeps the error
	}
	part := NewWork(w.ctx, size)
	part.whole, part.err = w, w.err
	w.last = part
	return part
}

// Begin begins a piece of the work that waits for nothing else until [Work.End]. Such pieces may contain others. Work beyond a
// slice of steps needs a turn of the process for each of them, see [processor.Turns]; short work does not.
func (w *Work) Begin() {
	w = w.root()
	if w.depth++; w.spent >= SliceSteps && !w.turn && w.err == nil {
		w.take()
	}
}

// End ends what [Work.Begin] began.
func (w *Work) End() {
	w = w.root()
	if w.depth--; w.depth == 0 && w.turn {
		w.turn = false
		processor.Process.Leave()
	}
}

func (w *Work) root() *Work {
	for w.whole != nil {
		w = w.whole
	}
	return w
}

func (w *Work) take() {
	w.err = processor.Process.Take(w.ctx)
	w.turn = w.err == nil
}

// Widen adds to the budget, in steps.
func (w *Work) Widen(steps int64) { w.most += steps }

// Grow adds size bytes to what is looked at, here and in the work that this is a part of.
func (w *Work) Grow(size int) {
	for ; w != nil; w = w.whole {
		w.most += StepsPerByte * int64(size)
	}
}

// Refuse has the work fail with [ErrTooMuch], unless it has failed before.
func (w *Work) Refuse() error {
	if w.err == nil {
		w.err = ErrTooMuch
	}
	return w.err
}

// Spend counts steps. It returns [ErrTooMuch], or why the context ended, and does so ever after.
func (w *Work) Spend(steps int) error {
	w.spent += int64(steps)
	if w.spent < w.next || w.err != nil {
		return w.err
	}
	return w.check()
}

func (w *Work) check() error {
	w.next = w.spent + SliceSteps
	if w.whole != nil && w.spent <= w.most {
		w.err = w.pass()
		return w.err
	}
	if w.err = w.ctx.Err(); w.err != nil {
		return w.err
	}
	switch {
	case w.spent > w.most:
		w.err = ErrTooMuch
	case w.turn:
		w.err = processor.Process.Yield(w.ctx)
		w.turn = w.err == nil
	case w.depth > 0:
		w.take()
	default:
		runtime.Gosched()
	}
	return w.err
}

// pass has the work that this is a part of count what it has not counted yet.
func (w *Work) pass() error {
	steps := w.spent - w.passed
	w.passed = w.spent
	return w.whole.Spend(int(steps))
}

// Err returns why the work failed, nil if it did not.
func (w *Work) Err() error { return w.err }

// Spent returns the steps so far.
func (w *Work) Spent() int64 { return w.spent }

func unbounded() *Work {
	return &Work{ctx: context.Background(), most: math.MaxInt64, next: math.MaxInt64}
}
