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

// ErrTooManySteps reports that the budget of a [StepBudget] is used up.
var ErrTooManySteps = errors.New("it takes more work to check than is allowed")

// StepBudget pays for matching: it counts steps, and fails once they exceed its budget or its context has ended. It is a value
// of one judgement and not safe for concurrent use.
type StepBudget struct {
	ctx       context.Context
	parent    *StepBudget // that this is a part of, nil = none
	spent     int64
	reported  int64 // of spent, what whole has counted
	maxSteps  int64
	nextCheck int64       // the steps at which the context is looked at next
	lastPart  *StepBudget // the part that was made last
	depth     int         // of calls of Begin without End
	hasPermit bool        // it has one of the process's turns
	err       error
}

// NewStepBudget returns the work of judging size bytes.
func NewStepBudget(ctx context.Context, size int) *StepBudget {
	return &StepBudget{ctx: ctx, maxSteps: BaseSteps + StepsPerByte*int64(size), nextCheck: SliceSteps}
}

// NewPart returns the work of judging one part of size bytes. It has a budget of its own, so that the verdict on a part does
// not depend on the others, and counts towards w as well.
func (w *StepBudget) NewPart(size int) *StepBudget {
	if w.lastPart != nil {
		_ = w.lastPart.reportToParent() // w keeps the error
	}
	part := NewStepBudget(w.ctx, size)
	part.parent, part.err = w, w.err
	w.lastPart = part
	return part
}

// BeginComputation begins a piece of the work that waits for nothing else until [StepBudget.EndComputation]. Such pieces may contain others. Work beyond a
// slice of steps needs a turn of the process for each of them, see [processor.Semaphore]; short work does not.
func (w *StepBudget) BeginComputation() {
	w = w.rootBudget()
	if w.depth++; w.spent >= SliceSteps && !w.hasPermit && w.err == nil {
		w.acquireProcessor()
	}
}

// EndComputation ends what [StepBudget.BeginComputation] began.
func (w *StepBudget) EndComputation() {
	w = w.rootBudget()
	if w.depth--; w.depth == 0 && w.hasPermit {
		w.hasPermit = false
		processor.Shared.Release()
	}
}

func (w *StepBudget) rootBudget() *StepBudget {
	for w.parent != nil {
		w = w.parent
	}
	return w
}

func (w *StepBudget) acquireProcessor() {
	w.err = processor.Shared.Acquire(w.ctx)
	w.hasPermit = w.err == nil
}

// AddSteps adds to the budget, in steps.
func (w *StepBudget) AddSteps(steps int64) { w.maxSteps += steps }

// AddBytes adds size bytes to what is looked at, here and in the work that this is a part of.
func (w *StepBudget) AddBytes(size int) {
	for ; w != nil; w = w.parent {
		w.maxSteps += StepsPerByte * int64(size)
	}
}

// FailTooManySteps has the work fail with [ErrTooManySteps], unless it has failed before.
func (w *StepBudget) FailTooManySteps() error {
	if w.err == nil {
		w.err = ErrTooManySteps
	}
	return w.err
}

// SpendSteps counts steps. It returns [ErrTooManySteps], or why the context ended, and does so ever after.
func (w *StepBudget) SpendSteps(steps int) error {
	w.spent += int64(steps)
	if w.spent < w.nextCheck || w.err != nil {
		return w.err
	}
	return w.checkBudget()
}

func (w *StepBudget) checkBudget() error {
	w.nextCheck = w.spent + SliceSteps
	if w.parent != nil && w.spent <= w.maxSteps {
		w.err = w.reportToParent()
		return w.err
	}
	if w.err = w.ctx.Err(); w.err != nil {
		return w.err
	}
	switch {
	case w.spent > w.maxSteps:
		w.err = ErrTooManySteps
	case w.hasPermit:
		w.err = processor.Shared.Yield(w.ctx)
		w.hasPermit = w.err == nil
	case w.depth > 0:
		w.acquireProcessor()
	default:
		runtime.Gosched()
	}
	return w.err
}

// reportToParent has the work that this is a part of count what it has not counted yet.
func (w *StepBudget) reportToParent() error {
	steps := w.spent - w.reported
	w.reported = w.spent
	return w.parent.SpendSteps(int(steps))
}

// Err returns why the work failed, nil if it did not.
func (w *StepBudget) Err() error { return w.err }

// SpentSteps returns the steps so far.
func (w *StepBudget) SpentSteps() int64 { return w.spent }

func newUnboundedBudget() *StepBudget {
	return &StepBudget{ctx: context.Background(), maxSteps: math.MaxInt64, nextCheck: math.MaxInt64}
}
