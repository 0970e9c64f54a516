// Package billing counts what apps use, prices it, bounds it by budgets, and invoices it.
//
// Usage. A fact that can cost something (a model call, a tool call, the run time of a turn, embeddings, stored bytes)
// is one row of table usage ([Usage]). A [Meter] makes the rows of a run's events ([RunFacts]) and adds them to the
// transaction that appends these events to the task's log. The rows are the only source of truth: balances and invoices
// can be computed from them again. A row gets its price when it is written, from the version of the [PriceBook] that
// was in force when the usage began ([PriceVersion], [UsagePrice]).
//
// Budgets. A [Budget] bounds tokens, model calls or money within a [Window], for an app, a part of it ([Scope]) or the
// platform. A model call goes through three steps:
//
//  1. [BudgetGate.CheckBudget] refuses a request early if a budget is already used up.
//  2. [BudgetGate.ReserveUsage] reserves, before the call, the most that the call can cost, in every budget that
//     applies, or in none.
//  3. [Reservation.SettleUsage] replaces the reserved amount by the actual usage and writes the usage row, in one
//     transaction; [Reservation.ReleaseUsage] returns the reserved amount if nothing was used.
//
// A process renews its reservations. Those of a process that died expire ([Service.ExpireReservations]), and the
// balance is then computed again from the usage rows ([Service.RebuildBalance]). So a hard budget is not exceeded by
// concurrent calls in several processes, and a crash neither loses usage that was recorded nor keeps an amount
// reserved.
//
// Plans and invoices. A [Plan] sets limits, allowed models and included quantities of the apps that are on it. Each app
// has a ledger of double entry that is append-only ([LedgerEntry]). An [Invoice] charges a month; each [Credit] that
// was granted pays a part of it. An [Exporter] delivers the usage rows to each [Sink].
//
// Money is a whole number of nano-units (10⁻⁹ of a currency), and so are prices: no amount in this package is a
// fraction. Sums do not overflow; they stop at the largest int64.
//
// The page docs/billing.md describes all of this for operators.
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

// The topics of the signal bus on which changes are published. The same names stand in table billing_change.
const (
	// topicPrice: the price book has changed. It has no key.
	topicPrice = "price"
	// topicPlan: the plans have changed. It has no key.
	topicPlan = "plan"
	// topicBudget: the budgets of an app have changed. The key is the app's id, "" for those of the platform.
	topicBudget = "budget"
)

// Options are the optional settings of a [Service]. The zero value works.
type Options struct {
	// Log receives warnings; nil means [slog.Default].
	Log *slog.Logger
	// MaxWait bounds how long a call waits for concurrent calls that have reserved what it needs and may not use all of
	// it; 0 means 10 s.
	MaxWait time.Duration
	// FinalizeGrace is how long after the end of its month a draft becomes final without a request; 0 means never.
	FinalizeGrace time.Duration
}

// Service is the billing of a platform. It is safe for concurrent use, in any number of processes on one database.
// [Open] makes it; [Service.Run] and [Service.RunBookkeeping] do its background work.
type Service struct {
	db  *db.DB
	bus *signal.Bus
	log *slog.Logger

	// priceBook, plans and budgets are caches of the database. Requests read them without a lock; they are replaced as
	// a whole under reloadMu, or for budgets by compare-and-swap as well.
	priceBook atomic.Pointer[PriceBook]
	plans     atomic.Pointer[map[string]Plan]
	budgets   budgetCache
	// changeCursor is the position in billing_change up to which the caches above are current.
	changeCursor changeCursor
	// pending holds usage rows that the database did not accept yet; see pendingUsage.
	pending pendingUsage
	// reloadMu makes the reads that fill the caches sequential. Otherwise a read that began earlier could overwrite the
	// result of a later one.
	reloadMu sync.Mutex
	// clock is the offset between this process's clock and the database's, by which windows are computed.
	clock databaseClock
	// recordedThresholds are the threshold events that this process has inserted lately, by "budget/window/per cent".
	// It only saves statements: the row's primary key keeps an event from being recorded twice. Run clears it every
	// reloadInterval.
	recordedThresholds sync.Map

	// maxWait and finalizeGrace are set by Open, then read-only; see [Options].
	maxWait       time.Duration
	finalizeGrace time.Duration

	// processID identifies this process as the holder of its reservations (column reservation.holder). It is new in
	// each process.
	processID string
	// reservations are the calls for which this process must renew a reservation.
	reservations activeReservations

	// staleSignals is the set of [signal.Signal] whose cache is to be read again. markStale adds, the goroutine of Run
	// removes.
	staleSignals sync.Map
	// wake has one buffered element: it is full while staleSignals may hold something.
	wake chan struct{}
}

// Open returns the billing of database d, whose migrations must have been applied, with the caches filled. Changes are
// published on bus. The cursor of changes is read before the caches, so that a change in between is read twice rather
// than missed.
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

// reloadInterval is how long a process may use a cached price, plan or budget if neither a signal nor billing_change
// announced the change: Run reads all of them again that often.
const reloadInterval = time.Minute

// Run keeps the caches of prices, plans and budgets current, renews this process's reservations, expires those of
// processes that died, and writes usage that waits for the database. It returns ctx.Err() when ctx ends, after its
// goroutines have ended.
func (s *Service) Run(ctx context.Context) error {
	for _, topic := range []string{topicPrice, topicPlan, topicBudget} {
		defer s.bus.WatchTopic(topic, func(key string) { s.markStale(signal.Signal{Topic: topic, Key: key}) })()
	}
	var work sync.WaitGroup
	defer work.Wait()
	// Each task has its own goroutine. If one is slow or hangs, this process's reservations must still be renewed:
	// their calls go on.
	work.Go(func() { s.runEvery(ctx, renewInterval, s.renewReservations) })
	work.Go(func() { s.runEvery(ctx, renewInterval, s.ExpireReservations) })
	work.Go(func() { s.runEvery(ctx, recountInterval, s.recountNewBudgets) })
	work.Go(func() { s.pollChanges(ctx) })
	work.Go(func() { s.flushPending(ctx) })
	// This goroutine alone reads the caches again when a signal arrives or reloadInterval has passed.
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

// runEvery calls f every pause until ctx ends. An error is logged, and the next call comes as usual.
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

// runLogged calls f and logs its error, unless ctx has ended. The caches keep what they had.
func (s *Service) runLogged(ctx context.Context, f func(context.Context) error) {
	if err := f(ctx); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "billing continues with the last known state", "error", err)
	}
}

// reloadAfterChange calls f, which reads the result of a committed change. It does so even if the caller's context has
// ended, and it returns no error: the change stands, and billing_change makes every process read it again within
// changesInterval.
func (s *Service) reloadAfterChange(ctx context.Context, f func(context.Context) error) {
	s.runLogged(context.WithoutCancel(ctx), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
		defer cancel()
		return f(ctx)
	})
}

// reloadTimeout bounds how long the response to a change waits for the caches to be read again.
const reloadTimeout = 5 * time.Second

// markStale makes the goroutine of Run read again what the signal names. It does not block: it is called from the
// signal bus.
func (s *Service) markStale(at signal.Signal) {
	s.staleSignals.Store(at, true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// reloadTopic reads again what the signal names: the price book, the plans, or the budgets of one app or of the
// platform. A budget signal with the key "" reads the budgets of all apps.
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

// InvalidError reports an invalid input field. Field and Reason may be shown to the caller.
type InvalidError struct {
	// Field is the path of the field in the request, such as items[2].per.
	Field  string
	Reason string
}

// Error returns "field: reason".
func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

// invalidField returns an [*InvalidError] for a field, with a formatted reason.
func invalidField(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// The errors of administrative requests. The text of an error that wraps one of them may be shown to the caller. See
// also ErrPrecondition.
var (
	// ErrNotFound reports that there is no such plan, budget, credit, price version or invoice.
	ErrNotFound = errors.New("not found")
	// ErrExists reports that the name or version is taken.
	ErrExists = errors.New("already exists")
)

// messageError wraps one of the errors above and has a text of its own, which replaces the wrapped error's text.
type messageError struct {
	kind error
	text string
}

func (r *messageError) Error() string { return r.text }
func (r *messageError) Unwrap() error { return r.kind }

// errorWithMessage returns an error with a formatted text for which errors.Is(err, kind) holds.
func errorWithMessage(kind error, format string, args ...any) error {
	return &messageError{kind, fmt.Sprintf(format, args...)}
}

// timeFromMicros converts a column of Unix microseconds. All times of this package are stored in this form.
func timeFromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }
