// Package billing counts what apps use, prices it, bounds it by budgets, and invoices it.
//
// Usage. A fact that can cost something (a model call, a tool call, the run time of a turn, embeddings, stored bytes)
// is one row of table usage ([Usage]). A [usage.Meter] makes the rows of a run's events ([usage.RunFacts]) and adds them to the
// transaction that appends these events to the task's log. The rows are the only source of truth: balances and invoices
// can be computed from them again. A row gets its price when it is written, from the version of the [price.Book] that
// was in force when the usage began ([price.Version], [price.Price]).
//
// Budgets. A [budget.Budget] bounds tokens, model calls or money within a [calendar.Window], for an app, a part of it ([budget.Scope]) or the
// platform. A model call goes through three steps:
//
//  1. [budget.Gate.CheckBudget] refuses a request early if a budget is already used up.
//  2. [budget.Gate.ReserveUsage] reserves, before the call, the most that the call can cost, in every budget that
//     applies, or in none.
//  3. [budget.Reservation.SettleUsage] replaces the reserved amount by the actual usage and writes the usage row, in one
//     transaction; [budget.Reservation.ReleaseUsage] returns the reserved amount if nothing was used.
//
// A process renews its reservations. Those of a process that died expire ([Service.ExpireReservations]), and the
// balance is then computed again from the usage rows ([Service.RebuildBalance]). So a hard budget is not exceeded by
// concurrent calls in several processes, and a crash neither loses usage that was recorded nor keeps an amount
// reserved.
//
// Plans and invoices. A [price.Plan] sets limits, allowed models and included quantities of the apps that are on it. Each app
// has a ledger of double entry that is append-only ([ledger.Entry]). An [invoice.Invoice] charges a month; each [invoice.Credit] that
// was granted pays a part of it. An [export.Exporter] delivers the usage rows to each [export.Sink].
//
// Money is a whole number of nano-units (10⁻⁹ of a currency), and so are prices: no amount in this package is a
// fraction. Sums do not overflow; they stop at the largest int64.
//
// The page docs/billing.md describes all of this for operators.
package billing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stoa/billing/budget"
	"stoa/billing/change"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Options are the optional settings of a [Service]. The zero value works.
type Options struct {
	// Log receives warnings; nil means [slog.Default].
	Log *slog.Logger
	// MaxWait is that of [budget.Options], FinalizeGrace that of [invoice.Options].
	MaxWait       time.Duration
	FinalizeGrace time.Duration
}

// Service is the billing of a platform: the services of its parts, which share caches. [Open] makes it; [Service.Run]
// and [invoice.Service.Run] do the background work.
type Service struct {
	Prices   *price.Service
	Usage    *usage.Service
	Budgets  *budget.Service
	Ledgers  *ledger.Service
	Invoices *invoice.Service

	feed *change.Feed
}

// Open returns the billing of database d, whose migrations must have been applied, with the caches filled. Changes are
// published on bus, which may be nil.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, o Options) (*Service, error) {
	o.Log = cmp.Or(o.Log, slog.Default())
	s := &Service{Ledgers: ledger.New(d)}
	var err error
	if s.feed, err = change.Open(ctx, d, bus, o.Log); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	if s.Prices, err = price.Open(ctx, d, bus, s.feed); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	s.Usage = usage.New(d, s.Prices, o.Log)
	if s.Budgets, err = budget.Open(ctx, d, bus, s.feed, s.Prices, s.Usage, budget.Options{Log: o.Log, MaxWait: o.MaxWait}); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	s.Invoices = invoice.New(d, s.Prices, s.Ledgers, invoice.Options{Log: o.Log, FinalizeGrace: o.FinalizeGrace})
	return s, nil
}

// Run keeps the caches of prices, plans and budgets current, renews this process's reservations, expires those of
// processes that died, and writes usage that waits for the database. It returns ctx.Err() when ctx ends, after its
// goroutines have ended.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	for _, run := range []func(context.Context) error{s.feed.Run, s.Usage.Run, s.Budgets.Run} {
		work.Go(func() { _ = run(ctx) }) // each returns ctx.Err()
	}
	work.Wait()
	return ctx.Err()
}

// CloseApp settles an app that is to be deleted: it makes all drafts final, closes its credits, and records what it has
// used of the platform's budgets. It may be repeated.
func (s *Service) CloseApp(ctx context.Context, actor string, app tenancy.App) error {
	err := s.Usage.NewMeter(app.ID, app.Plan).CloseStorage(ctx)
	if err == nil {
		err = s.Invoices.CloseAccount(ctx, actor, app)
	}
	if err != nil {
		return fmt.Errorf("close the books of app %s: %w", app.Name, err)
	}
	return s.Budgets.ArchiveUsage(ctx, app.ID)
}
