package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// CourierOptions tune a [Courier]. Desk and Forms are required; what else is zero takes the value named beside it.
type CourierOptions struct {
	// Desk lends the desk of a tenant. An error means that nothing of it is told for now.
	Desk func(ctx context.Context, tenant db.ID) (d *Desk, release func(), err error)
	// Forms are those that receivers may have, by name.
	Forms map[string]Form

	Concurrent int           // receivers told at a time; 32
	PerTenant  int           // of one tenant, in all processes; 4
	First      time.Duration // before what failed is tried again, twice as long after each failure; 1 second
	Longest    time.Duration // at most; 10 minutes
	GiveUp     time.Duration // how long a receiver may fail; 24 hours
	Look       time.Duration // at least so often somebody looks for news; 1 second

	Log *slog.Logger
}

func (o *CourierOptions) defaults() {
	o.Concurrent = cmp.Or(o.Concurrent, 32)
	o.PerTenant = cmp.Or(o.PerTenant, 4)
	o.First = cmp.Or(o.First, time.Second)
	o.Longest = cmp.Or(o.Longest, 10*time.Minute)
	o.GiveUp = cmp.Or(o.GiveUp, 24*time.Hour)
	o.Look = cmp.Or(o.Look, time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

const (
	lease     = sendTime + 5*time.Second // of a receiver, renewed with whatever it takes
	firstLook = 50 * time.Millisecond
	postponed = 30 * time.Second // how long nothing is tried for an app that does not answer
	leaving   = 2 * time.Second  // that may be written down when the process stops
)

// Courier tells the receivers of one database's tasks.
type Courier struct {
	db        *db.DB
	receivers *store.Receivers
	o         CourierOptions
	wake      chan struct{}
	slots     chan struct{}

	mu     sync.Mutex
	visits map[*store.Telling]context.CancelFunc // those under way
}

// NewCourier returns a courier for the tasks in d.
func NewCourier(d *db.DB, o CourierOptions) *Courier {
	o.defaults()
	return &Courier{db: d, receivers: store.NewReceivers(d), o: o, wake: make(chan struct{}, 1), slots: make(chan struct{}, o.Concurrent), visits: map[*store.Telling]context.CancelFunc{}}
}

// Wake has the courier look for news soon.
func (c *Courier) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Stop breaks off what a tenant's receivers are being told: it does not answer any more.
func (c *Courier) Stop(tenant db.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, stop := range c.visits {
		if t.Tenant == tenant {
			stop()
		}
	}
}

// Resume has the receivers of a tenant told now that would be tried later.
func (c *Courier) Resume(ctx context.Context, tenant db.ID) {
	if err := c.receivers.Advance(ctx, tenant); err != nil {
		c.o.Log.Warn("the receivers of an app could not be advanced; they are told by themselves", "tenant", tenant, "error", err)
		return
	}
	c.Wake()
}

// Run tells receivers until ctx ends, and then leaves them to others.
func (c *Courier) Run(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	wait := firstLook
	for {
		select { // nobody looks while all are busy
		case c.slots <- struct{}{}:
			<-c.slots
		case <-ctx.Done():
			return ctx.Err()
		}
		claimed, err := c.receivers.Claim(ctx, c.o.Concurrent-len(c.slots), c.o.PerTenant, lease)
		if err != nil && ctx.Err() == nil {
			c.o.Log.Warn("nobody can look whom to tell", "error", err)
		}
		for _, t := range claimed {
			c.slots <- struct{}{}
			under.Go(func() {
				c.visit(ctx, t)
				<-c.slots
				c.Wake() // for the next of its tenant
			})
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.wake:
			wait = firstLook
		case <-timer.C:
			wait = min(2*wait, c.o.Look)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// visit tells t what it does not know yet, and writes down how that went.
func (c *Courier) visit(ctx context.Context, t *store.Telling) {
	ctx, stop := c.begin(ctx, t)
	defer stop()
	over, err := c.tell(ctx, t)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	var no *refusal
	switch {
	case over, errors.Is(err, agentsvc.ErrLost), errors.Is(err, agentsvc.ErrNotFound):
		return // nothing is left to do, or for somebody else
	case err == nil, ctx.Err() != nil:
		err = c.receivers.Leave(late, t, 0)
	case errors.Is(err, tenancy.ErrSuspended):
		err = c.receivers.Leave(late, t, postponed)
	case !errors.As(err, &no):
		c.o.Log.Warn("a receiver of notifications cannot be told for now", "tenant", t.Tenant, "task", t.Task, "error", err)
		err = c.receivers.Leave(late, t, postponed)
	case no.final, no.over:
		c.o.Log.Warn("a receiver of notifications was given up", "tenant", t.Tenant, "task", t.Task, "config", t.Name(), "reason", no.reason)
		err = c.receivers.GiveUp(late, t, no.reason)
	default:
		err = c.receivers.Failed(late, t, no.reason, c.pause(no.pace, t.Attempts))
	}
	if err != nil && !errors.Is(err, agentsvc.ErrLost) {
		c.o.Log.Warn("what became of a notification could not be written down: it may be sent again", "tenant", t.Tenant, "task", t.Task, "error", err)
	}
}

// begin begins a visit that [Courier.Stop] breaks off. Who has begun it ends it.
func (c *Courier) begin(ctx context.Context, t *store.Telling) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.visits[t] = cancel
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.visits, t)
		cancel()
	}
}
