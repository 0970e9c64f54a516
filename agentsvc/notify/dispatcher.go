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

// DispatcherOptions tune a [Dispatcher]. Desk and Forms are required; what else is zero takes the value named beside it.
type DispatcherOptions struct {
	// Notifier lends the desk of a tenant. An error means that nothing of it is told for now.
	Notifier func(ctx context.Context, tenant db.ID) (d *Notifier, release func(), err error)
	// Formats are those that receivers may have, by name.
	Formats map[string]Format

	MaxConcurrent  int           // receivers told at a time; 32
	MaxPerTenant   int           // of one tenant, in all processes; 4
	InitialBackoff time.Duration // before what failed is tried again, twice as long after each failure; 1 second
	MaxBackoff     time.Duration // at most; 10 minutes
	MaxFailing     time.Duration // how long a receiver may fail; 24 hours
	PollInterval   time.Duration // at least so often somebody looks for news; 1 second

	Log *slog.Logger
}

func (o *DispatcherOptions) setDefaults() {
	o.MaxConcurrent = cmp.Or(o.MaxConcurrent, 32)
	o.MaxPerTenant = cmp.Or(o.MaxPerTenant, 4)
	o.InitialBackoff = cmp.Or(o.InitialBackoff, time.Second)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 10*time.Minute)
	o.MaxFailing = cmp.Or(o.MaxFailing, 24*time.Hour)
	o.PollInterval = cmp.Or(o.PollInterval, time.Second)
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

const (
	leaseTime        = sendTimeout + 5*time.Second // of a receiver, renewed with whatever it takes
	minPollInterval  = 50 * time.Millisecond
	unavailableDelay = 30 * time.Second // how long nothing is tried for an app that does not answer
	recordTimeout    = 2 * time.Second  // that may be written down when the process stops
)

// Dispatcher tells the receivers of one database's tasks.
type Dispatcher struct {
	db        *db.DB
	receivers *store.ReceiverQueue
	options   DispatcherOptions
	wakeup    chan struct{}
	slots     chan struct{}

	mu         sync.Mutex
	deliveries map[*store.LeasedReceiver]context.CancelFunc // those under way
}

// NewDispatcher returns a courier for the tasks in d.
func NewDispatcher(d *db.DB, o DispatcherOptions) *Dispatcher {
	o.setDefaults()
	return &Dispatcher{db: d, receivers: store.NewReceiverQueue(d), options: o, wakeup: make(chan struct{}, 1), slots: make(chan struct{}, o.MaxConcurrent), deliveries: map[*store.LeasedReceiver]context.CancelFunc{}}
}

// Wake has the courier look for news soon.
func (c *Dispatcher) Wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
}

// StopTenant breaks off what a tenant's receivers are being told: it does not answer any more.
func (c *Dispatcher) StopTenant(tenant db.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, stop := range c.deliveries {
		if t.Tenant == tenant {
			stop()
		}
	}
}

// ExpediteTenant has the receivers of a tenant told now that would be tried later.
func (c *Dispatcher) ExpediteTenant(ctx context.Context, tenant db.ID) {
	if err := c.receivers.ExpediteReceivers(ctx, tenant); err != nil {
		c.options.Log.Warn("the receivers of an app could not be advanced; they are told by themselves", "tenant", tenant, "error", err)
		return
	}
	c.Wake()
}

// Run tells receivers until ctx ends, and then leaves them to others.
func (c *Dispatcher) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	wait := minPollInterval
	for {
		select { // nobody looks while all are busy
		case c.slots <- struct{}{}:
			<-c.slots
		case <-ctx.Done():
			return ctx.Err()
		}
		claimed, err := c.receivers.ClaimReceivers(ctx, c.options.MaxConcurrent-len(c.slots), c.options.MaxPerTenant, leaseTime)
		if err != nil && ctx.Err() == nil {
			c.options.Log.Warn("nobody can look whom to tell", "error", err)
		}
		for _, t := range claimed {
			c.slots <- struct{}{}
			workers.Go(func() {
				c.deliverAndRecord(ctx, t)
				<-c.slots
				c.Wake() // for the next of its tenant
			})
		}
		timer := time.NewTimer(wait)
		select {
		case <-c.wakeup:
			wait = minPollInterval
		case <-timer.C:
			wait = min(2*wait, c.options.PollInterval)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// deliverAndRecord tells t what it does not know yet, and writes down how that went.
func (c *Dispatcher) deliverAndRecord(ctx context.Context, t *store.LeasedReceiver) {
	ctx, stop := c.beginDelivery(ctx, t)
	defer stop()
	ended, err := c.deliverEvents(ctx, t)
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	var deliveryErr *deliveryError
	switch {
	case ended, errors.Is(err, agentsvc.ErrLeaseLost), errors.Is(err, agentsvc.ErrNotFound):
		return // nothing is left to do, or for somebody else
	case err == nil, ctx.Err() != nil:
		err = c.receivers.ReleaseReceiver(late, t, 0)
	case errors.Is(err, tenancy.ErrSuspended):
		err = c.receivers.ReleaseReceiver(late, t, unavailableDelay)
	case !errors.As(err, &deliveryErr):
		c.options.Log.Warn("a receiver of notifications cannot be told for now", "tenant", t.Tenant, "task", t.Task, "error", err)
		err = c.receivers.ReleaseReceiver(late, t, unavailableDelay)
	case deliveryErr.isPermanent, deliveryErr.skipsEvent:
		c.options.Log.Warn("a receiver of notifications was given up", "tenant", t.Tenant, "task", t.Task, "config", t.PublicID(), "reason", deliveryErr.reason)
		err = c.receivers.MarkDead(late, t, deliveryErr.reason)
	default:
		err = c.receivers.MarkFailed(late, t, deliveryErr.reason, c.retryDelay(deliveryErr.retry, t.Attempts))
	}
	if err != nil && !errors.Is(err, agentsvc.ErrLeaseLost) {
		c.options.Log.Warn("what became of a notification could not be written down: it may be sent again", "tenant", t.Tenant, "task", t.Task, "error", err)
	}
}

// beginDelivery begins a visit that [Dispatcher.StopTenant] breaks off. Who has begun it ends it.
func (c *Dispatcher) beginDelivery(ctx context.Context, t *store.LeasedReceiver) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveries[t] = cancel
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.deliveries, t)
		cancel()
	}
}
