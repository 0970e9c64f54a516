package billing

import (
	"context"
	"errors"
	"fmt"
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
	}, `SELECT tenant, call FROM reservation WHERE expires_at < stoa_now() ORDER BY expires_at LIMIT 1000`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for lapsed reservations: %w", err)
	}
	var errs []error
	for _, l := range found {
		errs = append(errs, s.lapse(ctx, l))
	}
	return errors.Join(errs...)
}

// lapse ends one reservation, unless somebody else does. The balances it had a part in are worked out anew: its call may
// have left a usage row and no more.
func (s *Service) lapse(ctx context.Context, l lapsed) error {
	err := s.db.Platform().Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM reservation WHERE tenant = $1 AND call = $2 AND expires_at < stoa_now()`, l.tenant, l.call)
		if err != nil || n == 0 {
			return err
		}
		type part struct {
			budget Budget
			since  time.Time
		}
		var parts []part
		err = tx.Query(ctx, func(row db.Row) error {
			var p part
			var since int64
			err := row.Scan((*string)(&p.budget.App), &p.budget.ID, &since)
			p.since = micros(since)
			parts = append(parts, p)
			return err
		}, `SELECT owner, budget, since FROM reservation_line WHERE tenant = $1 AND call = $2 ORDER BY owner, budget`, l.tenant, l.call)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM reservation_line WHERE tenant = $1 AND call = $2`, l.tenant, l.call); err != nil {
			return err
		}
		for _, p := range parts {
			for _, b := range s.budgets.of(p.budget.App) {
				if b.ID != p.budget.ID {
					continue
				}
				if _, err := rebuild(ctx, tx, b, p.since); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("end a lapsed reservation: %w", err)
	}
	return nil
}
