// Package billing counts what apps use, prices it, bounds it by budgets, and invoices it. Each of these is a package
// below this one; [Service] has their services on one database:
//
//   - [usage] records what apps use, one row for each fact that can cost something;
//   - [price] has the price book and the plans;
//   - [budget] bounds what apps use;
//   - [ledger] has the accounts of each app;
//   - [party] has the names and addresses of seller and buyers;
//   - [invoice] charges the usage of a month, and has the credits that pay for it;
//   - [export] delivers the usage rows to files, a webhook and Stripe.
//
// Money is a whole number of nano-units (10⁻⁹ of a currency), and so are prices: no amount is a fraction. Sums do not
// overflow; they stop at the largest int64 ([stoa/billing/amount]).
//
// The index in the package comment of cmd/stoa/server (server.go) names the functions around a model call.
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
	"stoa/billing/export"
	"stoa/billing/invoice"
	"stoa/billing/ledger"
	"stoa/billing/party"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Options are the optional settings of a [Service]. The zero value works.
type Options struct {
	// Log receives warnings; nil means [slog.Default].
	Log *slog.Logger
	// FinalizeGrace is that of [invoice.Options].
	FinalizeGrace time.Duration
}

// Service is the billing of a platform: the services of its parts, which share caches. [Open] makes it; [Service.Run]
// and [invoice.Service.Run] do the background work.
type Service struct {
	Prices   *price.Service
	Usage    *usage.Service
	Budgets  *budget.Service
	Ledgers  *ledger.Service
	Parties  *party.Service
	Invoices *invoice.Service
	Exports  *export.Service

	feed *change.Feed
}

// Open returns the billing of database d, whose migrations must have been applied, with the caches filled. Changes are
// published on bus, which may be nil.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, o Options) (*Service, error) {
	o.Log = cmp.Or(o.Log, slog.Default())
	s := &Service{Ledgers: ledger.New(d), Parties: party.New(d)}
	var err error
	if s.feed, err = change.Open(ctx, d, bus, o.Log); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	if s.Prices, err = price.Open(ctx, d, bus, s.feed); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	s.Usage = usage.New(d, s.Prices, o.Log)
	if s.Budgets, err = budget.Open(ctx, d, bus, s.feed, s.Prices, s.Usage, budget.Options{Log: o.Log}); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	s.Invoices = invoice.New(d, s.Prices, s.Ledgers, invoice.Options{Log: o.Log, FinalizeGrace: o.FinalizeGrace})
	s.Exports = export.New(d, s.Budgets, o.Log)
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
func (s *Service) CloseApp(ctx context.Context, actor audit.Actor, app tenancy.App) error {
	err := s.Usage.NewMeter(app.ID, app.Plan).CloseStorage(ctx)
	if err == nil {
		err = s.Invoices.CloseAccount(ctx, actor, app)
	}
	if err != nil {
		return fmt.Errorf("close the account of app %s: %w", app.Name, err)
	}
	return s.Budgets.ArchiveUsage(ctx, app.ID)
}

// AdoptApp completes, in the transaction of its import, an app whose rows come from another installation: all processes read
// its budgets, and no export of this installation delivers the usage that was recorded before, which the other
// installation's exports have delivered. It must be the last statement of tx that locks rows.
func (s *Service) AdoptApp(ctx context.Context, tx *db.Tx, app db.ID) error {
	_, err := tx.Exec(ctx, `INSERT INTO export_cursor (tenant, export, sealed) SELECT CAST($1 AS TEXT), name, stoa_now() FROM export`, string(app))
	if err != nil {
		return fmt.Errorf("adopt app %s: %w", app, err)
	}
	return change.Record(ctx, tx, change.Budget, string(app))
}

// CountAdopted adds the usage of an imported app to the balances of the platform's budgets, after its transaction.
func (s *Service) CountAdopted(ctx context.Context) error {
	_, err := s.Budgets.RebuildBalances(ctx, "")
	return err
}
