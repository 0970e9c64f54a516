package notify

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store/receiver"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// DispatcherOptions are the options of a [Dispatcher]. Notifier and Formats are required.
type DispatcherOptions struct {
	// Notifier returns the notifier of a tenant, and a function that releases it. After an error the tenant's receivers
	// are tried again later.
	Notifier func(ctx context.Context, tenant db.ID) (d *Notifier, release func(), err error)
	// Formats are the formats of receivers, by name.
	Formats map[string]Format

	// MaxConcurrent bounds the receivers that this process serves at a time; 32 if zero.
	MaxConcurrent int
	// MaxPerTenant bounds those of one tenant, in all processes together; 4 if zero.
	MaxPerTenant int
	// InitialBackoff is the pause after the first failure, which doubles with each further one; 1 second if zero.
	InitialBackoff time.Duration
	// MaxBackoff bounds the pause; 10 minutes if zero.
	MaxBackoff time.Duration
	// MaxFailing is how long a receiver may fail before it is given up; 24 hours if zero.
	MaxFailing time.Duration
	// PollInterval bounds the interval between searches for undelivered events; 1 second if zero.
	PollInterval time.Duration

	Log *slog.Logger
}

// setDefaults replaces zero values.
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
	// leaseTime is the lease on a receiver. It is longer than an attempt, and each delivered event renews it.
	leaseTime = sendTimeout + 5*time.Second
	// minPollInterval is the interval between searches after a wake-up. It doubles up to PollInterval while nothing
	// happens.
	minPollInterval = 50 * time.Millisecond
	// unavailableDelay is the pause for an app that is suspended or cannot be loaded.
	unavailableDelay = 30 * time.Second
	// recordTimeout bounds the statement that records a result when the process stops.
	recordTimeout = 2 * time.Second
)

// Dispatcher delivers the events of one database's tasks to their receivers.
type Dispatcher struct {
	db        *db.DB
	receivers *receiver.Queue
	options   DispatcherOptions
	// wakeup has one buffered element. slots has MaxConcurrent, one for each delivery in progress.
	wakeup chan struct{}
	slots  chan struct{}

	// mu guards deliveries.
	mu sync.Mutex
	// deliveries are those in progress, with the functions that cancel them.
	deliveries map[*receiver.Claimed]context.CancelFunc
}

// NewDispatcher returns a dispatcher for the tasks in d.
func NewDispatcher(d *db.DB, o DispatcherOptions) *Dispatcher {
	o.setDefaults()
	return &Dispatcher{db: d, receivers: receiver.NewQueue(d), options: o, wakeup: make(chan struct{}, 1), slots: make(chan struct{}, o.MaxConcurrent), deliveries: map[*receiver.Claimed]context.CancelFunc{}}
}

// Wake makes the dispatcher look for undelivered events soon. It does not block.
func (dis *Dispatcher) Wake() {
	select {
	case dis.wakeup <- struct{}{}:
	default:
	}
}

// StopTenant cancels the deliveries in progress of a tenant: it is suspended or deleted.
func (dis *Dispatcher) StopTenant(tenant db.ID) {
	dis.mu.Lock()
	defer dis.mu.Unlock()
	for t, stop := range dis.deliveries {
		if t.Tenant == tenant {
			stop()
		}
	}
}

// ExpediteTenant makes the receivers of a tenant due now whose next attempt is later. A failure is logged: they become
// due by themselves.
func (dis *Dispatcher) ExpediteTenant(ctx context.Context, tenant db.ID) {
	if err := dis.receivers.Expedite(ctx, tenant); err != nil {
		dis.options.Log.Warn("the receivers of an app could not be advanced together; each is advanced separately", "tenant", tenant, "error", err)
		return
	}
	dis.Wake()
}

// Run delivers until ctx ends. The receivers whose delivery was interrupted are released for other processes.
func (dis *Dispatcher) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	defer workers.Wait()
	wait := minPollInterval
	for {
		// Wait for a free slot: claiming more receivers than can be served would only keep them from other processes.
		select {
		case dis.slots <- struct{}{}:
			<-dis.slots
		case <-ctx.Done():
			return ctx.Err()
		}
		claimed, err := dis.receivers.Claim(ctx, dis.options.MaxConcurrent-len(dis.slots), dis.options.MaxPerTenant, leaseTime)
		if err != nil && ctx.Err() == nil {
			dis.options.Log.Warn("the due receivers of notifications could not be read", "error", err)
		}
		for _, t := range claimed {
			dis.slots <- struct{}{}
			workers.Go(func() {
				dis.deliverAndRecord(ctx, t)
				<-dis.slots
				// The tenant may have more receivers, which MaxPerTenant kept from being claimed.
				dis.Wake()
			})
		}
		timer := time.NewTimer(wait)
		select {
		case <-dis.wakeup:
			wait = minPollInterval
		case <-timer.C:
			wait = min(2*wait, dis.options.PollInterval)
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// deliverAndRecord delivers the events that t does not have, and records the result.
func (dis *Dispatcher) deliverAndRecord(ctx context.Context, t *receiver.Claimed) {
	ctx, stop := dis.beginDelivery(ctx, t)
	defer stop()
	ended, err := dis.deliverEvents(ctx, t)
	recordCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	var deliveryErr *deliveryError
	switch {
	// The receiver has ended, or another process has it: there is nothing to record.
	case ended, errors.Is(err, agentsvc.ErrLeaseLost), errors.Is(err, agentsvc.ErrNotFound):
		return
	// The turn of this receiver is over, or this process stops: release it without a pause.
	case err == nil, ctx.Err() != nil:
		err = dis.receivers.Release(recordCtx, t, 0)
	case errors.Is(err, tenancy.ErrSuspended):
		err = dis.receivers.Release(recordCtx, t, unavailableDelay)
	// An error that is not of the delivery itself, such as an app that cannot be loaded.
	case !errors.As(err, &deliveryErr):
		dis.options.Log.Warn("a receiver of notifications cannot be notified for now", "tenant", t.Tenant, "task", t.Task, "error", err)
		err = dis.receivers.Release(recordCtx, t, unavailableDelay)
	case deliveryErr.isPermanent, deliveryErr.skipsEvent:
		dis.options.Log.Warn("a receiver of notifications was given up", "tenant", t.Tenant, "task", t.Task, "config", t.PublicID(), "reason", deliveryErr.reason)
		err = dis.receivers.MarkDead(recordCtx, t, deliveryErr.reason)
	default:
		err = dis.receivers.MarkFailed(recordCtx, t, deliveryErr.reason, dis.retryDelay(deliveryErr.retry, t.Attempts))
	}
	if err != nil && !errors.Is(err, agentsvc.ErrLeaseLost) {
		dis.options.Log.Warn("the result of a notification could not be recorded: it may be sent again", "tenant", t.Tenant, "task", t.Task, "error", err)
	}
}

// beginDelivery registers a delivery, so that [Dispatcher.StopTenant] can cancel it. The caller must call the returned
// function at the end.
func (dis *Dispatcher) beginDelivery(ctx context.Context, t *receiver.Claimed) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	dis.mu.Lock()
	defer dis.mu.Unlock()
	dis.deliveries[t] = cancel
	return ctx, func() {
		dis.mu.Lock()
		defer dis.mu.Unlock()
		delete(dis.deliveries, t)
		cancel()
	}
}
