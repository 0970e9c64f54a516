package billing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// Of reservations: how long one holds that nobody renews, how often its process does, and how often those that have lapsed
// are looked for. What a dead process had reserved is free within a minute.
const (
	lease      = 40 * time.Second
	renewEvery = 10 * time.Second
)

// holding is the calls for which this process holds a reservation.
type holding struct {
	mu    sync.Mutex
	calls map[string]bool
}

func (h *holding) add(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls == nil {
		h.calls = map[string]bool{}
	}
	h.calls[call] = true
}

func (h *holding) drop(call string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.calls, call)
}

func (h *holding) list() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]string, 0, len(h.calls))
	for call := range h.calls {
		list = append(list, call)
	}
	return list
}

// renew keeps the reservations of this process.
func (s *Service) renew(ctx context.Context) error {
	for some := range slices.Chunk(s.held.list(), 100) {
		args := []any{s.holder, lease.Microseconds()}
		var places []string
		for _, call := range some {
			args = append(args, call)
			places = append(places, fmt.Sprintf("$%d", len(args)))
		}
		var b db.Batch
		b.Exec(nil, `UPDATE reservation SET expires_at = stoa_now() + $2 WHERE holder = $1 AND call IN (`+strings.Join(places, ", ")+`)`, args...)
		if err := s.db.Platform().Do(ctx, &b); err != nil {
			return fmt.Errorf("renew reservations: %w", err)
		}
	}
	return nil
}

// lapsed is a reservation that nobody renewed.
type lapsed struct{ tenant, call string }

// Lapse gives back what calls had reserved whose process is gone. What such a call did use, its row tells.
func (s *Service) Lapse(ctx context.Context) error {
	var found []lapsed
	var b db.Batch
	b.Query(func(row db.Row) error {
		var l lapsed
		err := row.Scan(&l.tenant, &l.call)
		found = append(found, l)
		return err
	}, `SELECT tenant, call FROM reservation WHERE expires_at < stoa_now() ORDER BY tenant, call LIMIT 1000`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for lapsed reservations: %w", err)
	}
	var errs []error
	for some := range slices.Chunk(found, perLapse) {
		errs = append(errs, s.lapse(ctx, some))
	}
	return errors.Join(errs...)
}

// perLapse is how many reservations one transaction ends.
const perLapse = 200

// balanceKey is the balance of a budget in a window.
type balanceKey struct {
	app    db.ID
	budget string
	since  int64
}

// lapse ends reservations, but for those that somebody else ends. The balances they had a part in are worked out anew, each
// once: a call may have left a usage row and no more.
func (s *Service) lapse(ctx context.Context, some []lapsed) error {
	err := s.db.Platform().Tx(ctx, func(tx *db.Tx) error {
		parts := map[balanceKey]bool{}
		for _, l := range some {
			n, err := tx.Exec(ctx, `DELETE FROM reservation WHERE tenant = $1 AND call = $2 AND expires_at < stoa_now()`, l.tenant, l.call)
			if err != nil {
				return err
			}
			if n == 0 {
				continue
			}
			err = tx.Query(ctx, func(row db.Row) error {
				var p balanceKey
				err := row.Scan((*string)(&p.app), &p.budget, &p.since)
				parts[p] = true
				return err
			}, `SELECT owner, budget, since FROM reservation_line WHERE tenant = $1 AND call = $2`, l.tenant, l.call)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `DELETE FROM reservation_line WHERE tenant = $1 AND call = $2`, l.tenant, l.call); err != nil {
				return err
			}
		}
		inOrder := func(x, y balanceKey) int {
			return cmp.Or(cmp.Compare(x.app, y.app), cmp.Compare(x.budget, y.budget), cmp.Compare(x.since, y.since))
		}
		for _, p := range slices.SortedFunc(maps.Keys(parts), inOrder) {
			of := s.budgets.of(p.app)
			i := slices.IndexFunc(of, func(b Budget) bool { return b.ID == p.budget })
			if i < 0 {
				continue // it is deleted
			}
			if _, err := rebuild(ctx, tx, of[i], micros(p.since)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("end lapsed reservations: %w", err)
	}
	return nil
}
