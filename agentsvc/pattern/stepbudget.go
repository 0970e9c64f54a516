package pattern

import (
	"context"
	"errors"
	"math"
	"runtime"

	"stoa/agentsvc/processor"
)

// Cost of matching. A step looks at one character in one state of a pattern and takes some 10 ns.
const (
	// BaseSteps is the budget of one judgement; StepsPerByte is added for each byte that is looked at. A usual pattern
	// takes one to seven steps for a byte.
	BaseSteps    = 8 << 20
	StepsPerByte = 16
	// SliceSteps is the largest number of steps between two checks of the context, at which other computations may get
	// the processor: less than a millisecond. One character may exceed it by the steps of all states of a pattern.
	SliceSteps = 16 << 10
)

// ErrTooManySteps reports that a [StepBudget] is spent.
var ErrTooManySteps = errors.New("it takes more work to check than is allowed")

// StepBudget counts the steps of one judgement. It fails when they exceed its limit or when its context has ended, and
// remains failed. It is not safe for concurrent use.
type StepBudget struct {
	// ctx is checked every SliceSteps.
	ctx context.Context
	// app is the app whose share of the processors is used, see package processor.
	app string
	// parent is the budget that this one is a part of, nil for the root. Only the root has depth and hasPermit.
	parent *StepBudget
	// spent is the number of steps so far.
	spent int64
	// reported is the part of spent that the parent has counted. It lags behind, so that not every call climbs to the
	// root.
	reported int64
	// maxSteps is the limit of spent.
	maxSteps int64
	// nextCheck is the value of spent at which checkBudget runs next.
	nextCheck int64
	// lastPart is the newest part; its last steps are reported when the next part is made.
	lastPart *StepBudget
	// depth is the number of BeginComputation calls without their EndComputation.
	depth int
	// hasPermit reports that the computation has a permit of processor.Shared.
	hasPermit bool
	// err is the first failure, then returned by every call.
	err error
}

// NewStepBudget returns the budget for judging size bytes. The computation uses the processors on behalf of app, "" for
// none. The caller must not use it beyond ctx.
func NewStepBudget(ctx context.Context, app string, size int) *StepBudget {
	return &StepBudget{ctx: ctx, app: app, maxSteps: BaseSteps + StepsPerByte*int64(size), nextCheck: SliceSteps}
}

// NewPart returns the budget for judging a part of size bytes. It has a limit of its own, so that the judgement of one
// part does not depend on the others, and its steps count towards w as well. Parts are used one after the other.
func (b *StepBudget) NewPart(size int) *StepBudget {
	if b.lastPart != nil {
		_ = b.lastPart.reportToParent() // b.err keeps the error
	}
	part := NewStepBudget(b.ctx, b.app, size)
	part.parent, part.err = b, b.err
	b.lastPart = part
	return part
}

// BeginComputation begins a computation that waits for nothing else until [StepBudget.EndComputation]. Computations may
// be nested. A budget that has spent more than one slice needs a permit of [processor.Shared] while it computes; short
// work does not.
func (b *StepBudget) BeginComputation() {
	b = b.rootBudget()
	if b.depth++; b.spent >= SliceSteps && !b.hasPermit && b.err == nil {
		b.acquireProcessor()
	}
}

// EndComputation ends what [StepBudget.BeginComputation] began, and releases the permit at the outermost level: what
// follows may wait, e.g. for the network.
func (b *StepBudget) EndComputation() {
	b = b.rootBudget()
	if b.depth--; b.depth == 0 && b.hasPermit {
		b.hasPermit = false
		processor.Shared.Release()
	}
}

// rootBudget returns the budget of the whole judgement.
func (b *StepBudget) rootBudget() *StepBudget {
	for b.parent != nil {
		b = b.parent
	}
	return b
}

// acquireProcessor waits for a permit. A failure, which is the context's, fails the budget.
func (b *StepBudget) acquireProcessor() {
	b.err = processor.Shared.Acquire(b.ctx, b.app)
	b.hasPermit = b.err == nil
}

// AddSteps raises the limit by steps.
func (b *StepBudget) AddSteps(steps int64) { b.maxSteps += steps }

// AddBytes raises the limit of w and of the budgets it is a part of by the steps of size bytes.
func (b *StepBudget) AddBytes(size int) {
	for ; b != nil; b = b.parent {
		b.maxSteps += StepsPerByte * int64(size)
	}
}

// FailTooManySteps fails the budget with [ErrTooManySteps], unless it has failed already, and returns its error.
func (b *StepBudget) FailTooManySteps() error {
	if b.err == nil {
		b.err = ErrTooManySteps
	}
	return b.err
}

// SpendSteps counts steps. It returns nil, [ErrTooManySteps] or the context's error; after a failure it returns the
// same error each time. The limit is checked once a slice, so it may be exceeded by one.
func (b *StepBudget) SpendSteps(steps int) error {
	b.spent += int64(steps)
	if b.spent < b.nextCheck || b.err != nil {
		return b.err
	}
	return b.checkBudget()
}

// checkBudget checks the limit and the context, and yields the processor. A part within its limit leaves all that to
// its parent.
func (b *StepBudget) checkBudget() error {
	b.nextCheck = b.spent + SliceSteps
	if b.parent != nil && b.spent <= b.maxSteps {
		b.err = b.reportToParent()
		return b.err
	}
	if b.err = b.ctx.Err(); b.err != nil {
		return b.err
	}
	switch {
	case b.spent > b.maxSteps:
		b.err = ErrTooManySteps
	case b.hasPermit:
		b.err = processor.Shared.Yield(b.ctx, b.app)
		b.hasPermit = b.err == nil
	case b.depth > 0:
		b.acquireProcessor()
	default:
		runtime.Gosched()
	}
	return b.err
}

// reportToParent adds the steps that the parent has not counted yet to it, and returns the parent's error.
func (b *StepBudget) reportToParent() error {
	steps := b.spent - b.reported
	b.reported = b.spent
	return b.parent.SpendSteps(int(steps))
}

// Err returns the failure, nil if there is none.
func (b *StepBudget) Err() error { return b.err }

// SpentSteps returns the number of steps so far.
func (b *StepBudget) SpentSteps() int64 { return b.spent }

// newUnboundedBudget returns a budget without limit and without checks, for texts that Stoa itself chose.
func newUnboundedBudget() *StepBudget {
	return &StepBudget{ctx: context.Background(), maxSteps: math.MaxInt64, nextCheck: math.MaxInt64}
}
