// Package price has the prices of usage: the price book with its versions, and the plans of apps.
//
// A [Version] of the book never changes, so usage keeps the price that it got when it was recorded. [Book.PriceUsage]
// prices usage by the version that was in force when it began. A [Plan] sets limits, allowed models, included
// quantities and overage prices of the apps that are on it; only invoices use the latter two.
package price

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"stoa/billing/change"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Service stores the price book and the plans and caches both. It is safe for concurrent use, in any number of
// processes on one database.
type Service struct {
	db   *db.DB
	bus  *signal.Bus
	feed *change.Feed

	// book and plans are caches of the database. Requests read them without a lock; they are replaced as a whole under
	// reloadMu.
	book  atomic.Pointer[Book]
	plans atomic.Pointer[map[string]Plan]
	// reloadMu makes the reads that fill the caches sequential. Otherwise a read that began earlier could overwrite the
	// result of a later one.
	reloadMu sync.Mutex
}

// Open returns the price book and the plans of database d, with the caches filled. feed keeps them current.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, feed *change.Feed) (*Service, error) {
	s := &Service{db: d, bus: bus, feed: feed}
	feed.OnChange(change.Price, func(ctx context.Context, _ string) error { return s.readPriceBook(ctx) })
	feed.OnChange(change.Plan, func(ctx context.Context, _ string) error { return s.readPlans(ctx) })
	if err := errors.Join(s.readPriceBook(ctx), s.readPlans(ctx)); err != nil {
		return nil, err
	}
	return s, nil
}

// CachedBook returns the price book from this process's cache. It does not query the database.
func (s *Service) CachedBook() *Book { return s.book.Load() }

// CurrencyForPlan is [Terms.CurrencyForPlan] by the caches.
func (s *Service) CurrencyForPlan(plan string) string { return s.CachedTerms().CurrencyForPlan(plan) }

// query reads from the database outside of any transaction.
func (s *Service) query(ctx context.Context, read func(db.Row) error, sql string, args ...any) error {
	var b db.Batch
	b.Query(read, sql, args...)
	return s.db.Platform().Do(ctx, &b)
}
