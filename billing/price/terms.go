package price

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// Terms are the plans and the price book at one moment. They are immutable.
type Terms struct {
	Book  *Book
	plans map[string]Plan
}

// QueryFunc is a query within a transaction or outside of any.
type QueryFunc func(ctx context.Context, read func(db.Row) error, sql string, args ...any) error

// ReadTerms reads the plans and the price book from the database. What becomes final by them (an invoice) must not depend
// on whether this process has heard of the last change.
func ReadTerms(ctx context.Context, query QueryFunc) (Terms, error) {
	plans, err := readPlans(ctx, query)
	if err != nil {
		return Terms{}, err
	}
	book, err := readBook(ctx, query)
	return Terms{book, plans}, err
}

// CachedTerms returns the plans and the price book from this process's cache. It does not query the database.
func (s *Service) CachedTerms() Terms { return Terms{s.book.Load(), *s.plans.Load()} }

// Plan returns the plan of that name, and whether it exists.
func (t Terms) Plan(name string) (Plan, bool) {
	p, ok := t.plans[name]
	return p, ok
}

// CurrencyForPlan returns the currency in which an app on the plan is charged: the plan's, else that of the price
// version created first. A later version never changes it. It is "" if there is neither.
func (t Terms) CurrencyForPlan(plan string) string {
	return cmp.Or(t.plans[plan].Currency, t.Book.defaultCurrency)
}

// readPlans reads all plans, by name.
func readPlans(ctx context.Context, query QueryFunc) (map[string]Plan, error) {
	plans := map[string]Plan{}
	err := query(ctx, func(row db.Row) error {
		var p Plan
		err := p.scanRow(row)
		plans[p.Name] = p
		return err
	}, `SELECT `+planColumns+` FROM plan`)
	if err != nil {
		return nil, fmt.Errorf("read the plans: %w", err)
	}
	return plans, nil
}

// readBook reads all versions of the price book.
func readBook(ctx context.Context, query QueryFunc) (*Book, error) {
	var versions []Version
	err := query(ctx, func(row db.Row) error {
		var p Version
		var from, created int64
		var items string
		if err := row.Scan(&p.Version, &p.Currency, &from, &items, &created); err != nil {
			return err
		}
		p.Effective, p.CreatedAt = time.UnixMicro(from).UTC(), time.UnixMicro(created).UTC()
		var stored []storedItem
		err := json.Unmarshal([]byte(items), &stored)
		for _, it := range stored {
			p.Items = append(p.Items, Item(it))
		}
		versions = append(versions, p)
		return err
	}, `SELECT version, currency, effective_from, items, created_at FROM price ORDER BY effective_from DESC, created_at DESC, version DESC`)
	if err != nil {
		return nil, fmt.Errorf("read the price book: %w", err)
	}
	return newPriceBook(versions), nil
}
