package budget

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/billing/change"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Options are the optional settings of a [Service]. The zero value works.
type Options struct {
	// Log receives warnings; nil means [slog.Default].
	Log *slog.Logger
	// MaxWait bounds how long a call waits for concurrent calls that have reserved what it needs and may not use all of
	// it; 0 means 10 s.
	MaxWait time.Duration
}

// Service stores the budgets of apps and of the platform and their balances. It is safe for concurrent use, in
// any number of processes on one database. [Open] makes it; [Service.Run] does its background work.
type Service struct {
	// The fields above budgets are set by Open, then read-only.
	db      *db.DB
	bus     *signal.Bus
	feed    *change.Feed
	prices  *price.Service
	usage   *usage.Service
	log     *slog.Logger
	maxWait time.Duration
	// processID identifies this process as the holder of its reservations (column reservation.holder). It is new in
	// each process.
	processID string

	// budgets is a cache of the database. Requests read it without a lock.
	budgets budgetCache
	// reloadMu makes the reads that fill the cache sequential. Otherwise a read that began earlier could overwrite the
	// result of a later one.
	reloadMu sync.Mutex
	// clock is the offset between this process's clock and the database's, by which windows are computed.
	clock databaseClock
	// recordedThresholds are the threshold events that this process has inserted lately, by "budget/window/per cent".
	// It only saves statements: the row's primary key keeps an event from being recorded twice. Run clears it every
	// ReloadInterval.
	recordedThresholds sync.Map
	// reservations are the calls for which this process must renew a reservation.
	reservations activeReservations
}

// Open returns the budgets of database d, with the cache filled. feed keeps it current. Changes and thresholds
// are published on bus, which may be nil.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, feed *change.Feed, prices *price.Service, usage *usage.Service, o Options) (*Service, error) {
	s := &Service{
		db: d, bus: bus, feed: feed, prices: prices, usage: usage, log: cmp.Or(o.Log, slog.Default()), maxWait: cmp.Or(o.MaxWait, 10*time.Second),
		processID: agentsvc.NewID(),
	}
	feed.OnChange(change.Budget, func(ctx context.Context, app string) error {
		// Without a key the whole cache is read: a change of the platform's budgets is rare.
		if app == "" {
			return s.readBudgets(ctx)
		}
		return s.readBudgets(ctx, db.ID(app))
	})
	usage.OnQueuedWritten(s.recountRows)
	if err := s.readBudgets(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Run renews this process's reservations, expires those of processes that died, and computes the balances of new
// budgets, until ctx ends. It returns ctx.Err() after its goroutines have ended.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	// Each job has its own goroutine. If one is slow or hangs, this process's reservations must still be renewed: their
	// calls go on.
	for _, job := range []struct {
		interval time.Duration
		run      func(context.Context) error
	}{
		{renewInterval, s.renewReservations},
		{expireInterval, s.ExpireReservations},
		{newBudgetInterval, func(ctx context.Context) error { return s.RecountNewBudgets(ctx, newBudgetAge) }},
		{youngBudgetInterval, func(ctx context.Context) error { return s.RecountNewBudgets(ctx, youngBudgetAge) }},
		{change.ReloadInterval, func(context.Context) error { s.recordedThresholds.Clear(); return nil }},
	} {
		work.Go(func() { runEvery(ctx, s.log, job.interval, job.run) })
	}
	<-ctx.Done()
	return ctx.Err()
}

// runEvery calls f at each interval until ctx ends. An error is logged, and the next call comes as usual.
func runEvery(ctx context.Context, log *slog.Logger, interval time.Duration, f func(context.Context) error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "billing continues with the last known state", "error", err)
		}
	}
}
