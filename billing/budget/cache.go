package budget

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
)

// budgetCache is a process's copy of the budgets of all apps; those of the platform have the key "". Each model call
// reads it, so a read takes no lock and no query.
type budgetCache struct {
	// byApp points to an immutable map: replaceBudgets stores a new one.
	byApp atomic.Pointer[map[db.ID][]Budget]
}

// budgetsOf returns the budgets of an app. The slice is shared: callers must not change it.
func (c *budgetCache) budgetsOf(app db.ID) []Budget {
	if all := c.byApp.Load(); all != nil {
		return (*all)[app]
	}
	return nil
}

// allBudgets returns the budgets of every app. The map is shared: callers must not change it.
func (c *budgetCache) allBudgets() map[db.ID][]Budget {
	if all := c.byApp.Load(); all != nil {
		return *all
	}
	return nil
}

// replaceBudgets replaces the budgets of the named apps by those in found, or all of them if none is named. An app that
// found does not have loses its budgets: they were deleted.
func (c *budgetCache) replaceBudgets(found map[db.ID][]Budget, apps ...db.ID) {
	// Compare-and-swap, since the partial replacement copies a map that another goroutine may replace meanwhile.
	for {
		before := c.byApp.Load()
		next := found
		if len(apps) > 0 && before != nil {
			next = maps.Clone(*before)
			for _, app := range apps {
				if delete(next, app); len(found[app]) > 0 {
					next[app] = found[app]
				}
			}
		}
		if c.byApp.CompareAndSwap(before, &next) {
			return
		}
	}
}

const budgetColumns = `tenant, id, name, agent, key_id, owner_sub, model, unit, amount, currency, span, timezone, hard, on_exhausted, thresholds, created_at, updated_at, updated_by`

// scanRow reads a row of budgetColumns into b.
func (b *Budget) scanRow(row db.Row) error {
	var thresholds string
	var created, updated int64
	err := row.Scan((*string)(&b.App), &b.ID, &b.Name, &b.Scope.Agent, &b.Scope.Key, &b.Scope.User, &b.Scope.Model, (*string)(&b.Unit), &b.Amount,
		&b.Currency, (*string)(&b.Window), &b.Zone, &b.Hard, &b.OnExhausted, &thresholds, &created, &updated, &b.UpdatedBy)
	if err != nil {
		return err
	}
	b.CreatedAt, b.UpdatedAt = time.UnixMicro(created).UTC(), time.UnixMicro(updated).UTC()
	if b.location, err = time.LoadLocation(b.Zone); err != nil {
		return err
	}
	return json.Unmarshal([]byte(thresholds), &b.Thresholds)
}

// readBudgets reads the budgets of the named apps, or of all apps if none is named, into the cache. The same round trip
// reads the database's clock.
func (s *Service) readBudgets(ctx context.Context, apps ...db.ID) error {
	s.reloadMu.Lock()
	defer s.reloadMu.Unlock()
	found := map[db.ID][]Budget{}
	read := func(row db.Row) error {
		var b Budget
		err := b.scanRow(row)
		found[b.App] = append(found[b.App], b)
		return err
	}
	var b db.Batch
	if len(apps) == 0 {
		b.Query(read, `SELECT `+budgetColumns+` FROM budget ORDER BY tenant, name`)
	}
	for _, app := range apps {
		b.Query(read, `SELECT `+budgetColumns+` FROM budget WHERE tenant = $1 ORDER BY name`, string(app))
	}
	sent := time.Now()
	b.Query(func(row db.Row) error { return s.clock.readTime(row, sent) }, `SELECT stoa_now()`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("read the budgets: %w", err)
	}
	s.budgets.replaceBudgets(found, apps...)
	return nil
}
