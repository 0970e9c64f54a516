// Package billing knows what apps use, what that costs, how much of it they may use and what they owe.
//
// What is used is a row for each fact that was counted ([Usage]): a [Meter] makes rows of the facts of a run, and they
// are written in the transaction of the fact. The rows are the truth; all else can be worked out from them again. What a
// row costs is worked out when it is written, by the price book ([Price], [PriceBook]) in force then.
//
// A [Plan] is what an app is put on: its limits, its models, what it includes. A [Budget] bounds tokens, model calls or money
// in a window, for an app, a part of it or the platform: before each model call a reservation takes what the call can cost
// at most from every budget that applies, afterwards what it did cost takes its place.
//
// What an app owes stands in its books, a ledger of double entry that is only added to: an [Invoice] for each month, paid in part
// by each [Credit] it was granted. An [Exporter] sends the rows elsewhere, to each [Sink].
//
// Money is whole thousand millionths of a currency (nano-units), and so are prices: nothing here is a fraction.
package billing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// The topics on which changes are signalled.
const (
	topicPrice  = "price"  // no key: the price book
	topicPlan   = "plan"   // no key: the plans
	topicBudget = "budget" // key: the id of an app, "" = the platform
)

// Options complete a [Service]. The zero value works.
type Options struct {
	Log *slog.Logger
	// MaxWait is how long a call waits for others that have reserved what it needs, and may not use it; 10 s.
	MaxWait time.Duration
	// FinalizeGrace is how long after the end of its month a draft becomes final by itself; 0 = it never does.
	FinalizeGrace time.Duration
}

// Service is the billing of a platform. It is safe for concurrent use, in any number of processes on one database.
type Service struct {
	db  *db.DB
	bus *signal.Bus
	log *slog.Logger

	priceBook          atomic.Pointer[PriceBook]
	plans              atomic.Pointer[map[string]Plan]
	budgets            budgetCache
	changeCursor       changeCursor
	pending            pendingUsage
	reloadMu           sync.Mutex // one read of them at a time, so that what was read last stays
	clock              databaseClock
	recordedThresholds sync.Map // thresholds that were passed, as this process noted lately

	maxWait       time.Duration
	finalizeGrace time.Duration

	processID    string // of reservations: this process
	reservations activeReservations

	staleSignals sync.Map      // signals to look at
	wake         chan struct{} // there are some
}

// Open returns the billing in migrated d, with prices, plans and budgets as they are. Changes are signalled on bus.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, o Options) (*Service, error) {
	s := &Service{db: d, bus: bus, log: o.Log, maxWait: cmp.Or(o.MaxWait, 10*time.Second), finalizeGrace: o.FinalizeGrace, processID: agentsvc.NewID(), wake: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.Default()
	}
	if err := errors.Join(s.skipChanges(ctx), s.readPriceBook(ctx), s.readPlans(ctx), s.readBudgets(ctx)); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	return s, nil
}

// reloadInterval is how long prices, plans and budgets are trusted whose change was neither signalled nor recorded.
const reloadInterval = time.Minute

// Run keeps prices, plans and budgets current, and this process's reservations, and ends those of processes that are gone,
// until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for _, topic := range []string{topicPrice, topicPlan, topicBudget} {
		defer s.bus.WatchTopic(topic, func(key string) { s.markStale(signal.Signal{Topic: topic, Key: key}) })()
	}
	var work sync.WaitGroup
	defer work.Wait()
	// Each by itself: what takes long, or hangs, must not have reservations lapse whose calls go on.
	work.Go(func() { s.runEvery(ctx, renewInterval, s.renewReservations) })
	work.Go(func() { s.runEvery(ctx, renewInterval, s.ExpireReservations) })
	work.Go(func() { s.runEvery(ctx, recountInterval, s.recountNewBudgets) })
	work.Go(func() { s.pollChanges(ctx) })
	work.Go(func() { s.flushPending(ctx) })
	again := time.NewTicker(reloadInterval)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-again.C:
			s.recordedThresholds.Clear()
			for _, topic := range []string{topicPrice, topicPlan, topicBudget} {
				s.markStale(signal.Signal{Topic: topic})
			}
		}
		s.staleSignals.Range(func(key, _ any) bool {
			s.staleSignals.Delete(key)
			s.runLogged(ctx, func(ctx context.Context) error { return s.reloadTopic(ctx, key.(signal.Signal)) })
			return true
		})
	}
}

// runEvery does f now and then until ctx ends.
func (s *Service) runEvery(ctx context.Context, pause time.Duration, f func(context.Context) error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.runLogged(ctx, f)
		}
	}
}

// runLogged does f, and goes on whatever comes of it.
func (s *Service) runLogged(ctx context.Context, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "billing goes on with what it knows", "error", err)
	}
}

// reloadAfterChange has f read what came of a change that stands, although its caller may be gone. Where that fails the change stands
// all the same, and is read again soon.
func (s *Service) reloadAfterChange(ctx context.Context, f func(context.Context) error) {
	s.runLogged(context.WithoutCancel(ctx), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
		defer cancel()
		return f(ctx)
	})
}

// reloadTimeout bounds how long the answer to a change waits for what came of it.
const reloadTimeout = 5 * time.Second

// markStale has what a signal tells of read again soon.
func (s *Service) markStale(at signal.Signal) {
	s.staleSignals.Store(at, true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reloadTopic reads what a signal tells of.
func (s *Service) reloadTopic(ctx context.Context, at signal.Signal) error {
	switch {
	case at.Topic == topicPrice:
		return s.readPriceBook(ctx)
	case at.Topic == topicPlan:
		return s.readPlans(ctx)
	case at.Key == "":
		return s.readBudgets(ctx)
	}
	return s.readBudgets(ctx, db.ID(at.Key))
}

// InvalidError says what was wrong with an input, and where. Both may be shown to the caller.
type InvalidError struct {
	Field  string
	Reason string
}

// Error returns "field: reason".
func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

func invalidField(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// What can go wrong with an administrator's call. What wraps one of these may be shown to the caller as it is.
var (
	// ErrNotFound says that there is no such plan, budget, credit or invoice.
	ErrNotFound = errors.New("not found")
	// ErrExists says that the name or version is taken.
	ErrExists = errors.New("already exists")
)

// messageError is one of these with words for the case at hand.
type messageError struct {
	kind error
	text string
}

func (r *messageError) Error() string { return r.text }
func (r *messageError) Unwrap() error { return r.kind }

func errorWithMessage(kind error, format string, args ...any) error {
	return &messageError{kind, fmt.Sprintf(format, args...)}
}

func timeFromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
