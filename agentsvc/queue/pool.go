package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// claimEvery is how often the queue is looked at when nobody calls: other processes' runs, and retries come due.
const claimEvery = time.Second

// ErrStopping is the cause by which a run's context ends when its process stops: the run is given back, not failed.
var ErrStopping = errors.New("the process is stopping")

// ErrStale is the cause by which a run's context ends when its process could not renew its lease in time.
var ErrStale = errors.New("the lease could not be renewed in time")

// ErrPostponed says that a run cannot go on for a reason that is not its own, such as a suspended app: it is given
// back to be tried later, and the attempt does not count. It is also the cause by which such a run's context ends.
var ErrPostponed = errors.New("the run is postponed")

// Handler runs one run to its end and records that end. An error it returns means that no end is recorded.
type Handler func(ctx context.Context, run store.Run) error

// Pool is the workers of one process.
type Pool struct {
	runs   *store.Runs
	handle Handler
	o      Options
	worker string

	live   chan struct{} // places for runs handed over in memory
	queued chan struct{} // places for runs claimed from the queue
	wake   chan struct{}
	back   chan struct{} // a run waits to be given back
	mind   chan struct{} // somebody said something about a run at work here

	accepted atomic.Bool // a run was accepted here since the queue was last looked at

	mu       sync.Mutex
	at       map[place]*work
	undone   []undone
	stopping bool
	released bool
	base     context.Context // of all runs
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup

	lastBeat atomic.Int64 // by the local monotonic clock
	started  time.Time
	strays   map[stray]time.Time // when first seen; only for sweep
	differs  bool                // another process has another configuration file; only for beat
}

// work is a run at work.
type work struct {
	turn, attempts int64
	cancel         context.CancelCauseFunc
}

// undone is a run whose handler recorded no end. It is to be given back.
type undone struct {
	run       store.Run
	postponed bool
}

type place struct {
	tenant db.ID
	task   agentsvc.TaskID
}

// New returns a pool whose runs are handled by handle. It starts nothing; [Pool.Run] does.
func New(runs *store.Runs, handle Handler, o Options) *Pool {
	o = o.withDefaults()
	base, cancel := context.WithCancelCause(context.Background())
	return &Pool{
		runs: runs, handle: handle, o: o, worker: agentsvc.NewID(),
		live: make(chan struct{}, o.MaxInflight), queued: make(chan struct{}, o.Workers), wake: make(chan struct{}, 1), back: make(chan struct{}, 1), mind: make(chan struct{}, 1),
		at: map[place]*work{}, base: base, cancel: cancel, started: time.Now(),
	}
}

// Open takes this process's first lease. Where alone is set no other process can hold one (a SQLite file's lock
// proves it), so every leased run found is an orphan and is rescued at once.
func (p *Pool) Open(ctx context.Context, alone bool) error {
	if alone {
		if _, err := p.runs.Rescue(ctx, 0); err != nil {
			return err
		}
	}
	return p.beat(ctx)
}

// Run claims, renews and rescues until ctx ends. Runs under way go on: [Pool.Drain] ends them.
func (p *Pool) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.beating(ctx) })
	wg.Go(func() { p.claiming(ctx) })
	wg.Go(func() { p.minding(ctx) })
	defer p.o.Bus.Watch(topicQueue, func(string) { rouse(p.wake) })()
	defer p.o.Bus.Watch(topicRun, p.said)()
	wg.Wait()
	return nil
}

// grace is how long Drain waits for runs whose context it has ended.
const grace = 5 * time.Second

// Drain accepts no more runs, waits for those under way as long as ctx lasts, stops the rest and gives their leases
// back: no attempt of theirs counts. Run goes on meanwhile, for the leases.
func (p *Pool) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { p.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		p.cancel(ErrStopping)
		select {
		case <-done:
		case <-time.After(grace):
			p.o.Log.Warn("runs go on after their end", "runs", p.Inflight())
		}
	}
	p.mu.Lock()
	p.released = true
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := p.runs.Release(ctx, p.worker)
	p.o.Bus.Publish(topicQueue, "")
	return err
}

// Reserve takes a place for a run that somebody waits for and returns the worker it is to be leased to.
func (p *Pool) Reserve() (worker string, ok bool) {
	if p.o.Idle || !p.enter() {
		return "", false
	}
	select {
	case p.live <- struct{}{}:
		return p.worker, true
	default:
		p.wg.Done()
		return "", false
	}
}

// Release gives a reserved place back.
func (p *Pool) Release() {
	<-p.live
	p.wg.Done()
}

// Start runs a run in the place reserved for it.
func (p *Pool) Start(run store.Run) {
	go func() {
		defer p.Release()
		p.do(run)
	}()
}

// Wake has the queue looked at now, in this process or where there is no place in another.
func (p *Pool) Wake() {
	p.accepted.Store(true)
	rouse(p.wake)
}

// StopTenant ends all runs of a tenant at work here; they are tried again when the tenant may work again.
func (p *Pool) StopTenant(tenant db.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, w := range p.at {
		if at.tenant == tenant {
			w.cancel(ErrPostponed)
		}
	}
}

// Resume has the runs of a tenant that were postponed go on now instead of later.
func (p *Pool) Resume(tenant db.ID) {
	ctx, cancel := context.WithTimeout(p.base, 5*time.Second)
	defer cancel()
	if err := p.runs.Advance(ctx, tenant); err != nil {
		p.o.Log.Warn("the postponed runs of a tenant could not be advanced; they go on by themselves", "tenant", tenant, "error", err)
		return
	}
	p.Wake()
}

// Inflight returns how many runs are at work in this process.
func (p *Pool) Inflight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

func (p *Pool) do(run store.Run) {
	ctx, cancel := context.WithCancelCause(p.base)
	defer cancel(nil)
	at, mine := place{run.Tenant, run.Task}, &work{run.Turn, run.Attempts, cancel}
	p.mu.Lock()
	if before := p.at[at]; before != nil {
		before.cancel(agentsvc.ErrLost) // its lease ran out, or the run would not be here again
	}
	p.at[at] = mine
	p.mu.Unlock()
	err := p.guarded(ctx, run)
	if errors.Is(err, agentsvc.ErrLost) {
		p.drop(run)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at[at] == mine {
		delete(p.at, at)
	}
	if err == nil || errors.Is(err, agentsvc.ErrLost) || errors.Is(context.Cause(ctx), ErrStopping) {
		return
	}
	postponed := errors.Is(err, ErrPostponed)
	if !postponed {
		p.o.Log.Error("a run ended without its end being recorded; it is tried again", "tenant", run.Tenant, "task", run.Task, "error", err)
	}
	p.undone = append(p.undone, undone{run, postponed})
	select {
	case p.back <- struct{}{}:
	default:
	}
}

// guarded handles run and turns a panic into an error.
func (p *Pool) guarded(ctx context.Context, run store.Run) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.o.Log.Error("the handler of a run panicked", "tenant", run.Tenant, "task", run.Task, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic of type %T", v)
		}
	}()
	return p.handle(ctx, run)
}

// drop ends a run that lost its task, unless somebody else has it by now.
func (p *Pool) drop(run store.Run) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	run.Worker = p.worker
	if err := p.runs.Drop(ctx, run); err != nil {
		p.o.Log.Warn("a run that lost its task could not be dropped", "tenant", run.Tenant, "task", run.Task, "error", err)
	}
}

func (p *Pool) claiming(ctx context.Context) {
	tick := time.NewTicker(claimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-tick.C:
			p.look(ctx)
		}
		if err := p.claim(ctx); err != nil && ctx.Err() == nil {
			p.o.Log.Warn("the queue cannot be read", "error", err)
		}
		p.passOn()
	}
}

// passOn wakes the workers of other processes where a run was accepted and there is no place for another here.
func (p *Pool) passOn() {
	if p.accepted.Swap(false) && (p.o.Idle || len(p.queued) == cap(p.queued) || p.isStopping()) {
		p.o.Bus.Publish(topicQueue, "")
	}
}

// look finds what is to be done that nobody calls for: runs that wait for a decision that comes too late, and runs that
// wait for others of their session which are gone.
func (p *Pool) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := p.runs.Overdue(ctx)
	if err == nil {
		_, err = p.runs.CallUp(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.o.Log.Warn("the queue cannot be read", "error", err)
	}
}

// claim fills the free places with pending runs.
func (p *Pool) claim(ctx context.Context) error {
	if p.o.Idle || !p.enter() {
		return nil
	}
	defer p.wg.Done()
	for {
		free := cap(p.queued) - len(p.queued) // only this goroutine takes places
		if free == 0 {
			return nil // whoever leaves a place wakes us
		}
		runs, err := p.runs.Claim(ctx, p.worker, free)
		if err != nil || len(runs) == 0 || p.isStopping() {
			return err
		}
		for _, run := range runs {
			p.queued <- struct{}{}
			p.wg.Go(func() {
				defer func() {
					<-p.queued
					rouse(p.wake)
				}()
				p.do(run)
			})
		}
	}
}

// enter has Drain wait for its caller, until p.wg.Done. It reports whether the pool still takes work.
func (p *Pool) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return false
	}
	p.wg.Add(1)
	return true
}

func (p *Pool) isStopping() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopping
}
