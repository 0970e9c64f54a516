package budget

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

// A reservation expires reservationExpiry after its last renewal. Its process renews it every renewInterval, so it
// survives three failed renewals. Every process looks for expired ones each expireInterval. So what a dead process had
// reserved is available again within a minute.
const (
	reservationExpiry = 40 * time.Second
	renewInterval     = 10 * time.Second
	expireInterval    = renewInterval
)

// activeReservations are the ids of the calls for which this process has a reservation.
type activeReservations struct {
	mu sync.Mutex
	// calls is guarded by mu.
	calls map[string]bool
}

func (r *activeReservations) addCall(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[string]bool{}
	}
	r.calls[call] = true
}

func (r *activeReservations) removeCall(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, call)
}

func (r *activeReservations) listCalls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]string, 0, len(r.calls))
	for call := range r.calls {
		list = append(list, call)
	}
	return list
}

// renewReservations extends the reservations of this process, 100 in a statement. The condition on holder keeps it from
// extending one of another process.
func (s *Service) renewReservations(ctx context.Context) error {
	for some := range slices.Chunk(s.reservations.listCalls(), 100) {
		args := []any{s.processID, reservationExpiry.Microseconds()}
		var placeholders []string
		for _, call := range some {
			args = append(args, call)
			placeholders = append(placeholders, fmt.Sprintf("$%d", len(args)))
		}
		var b db.Batch
		b.Exec(nil, `UPDATE reservation SET expires_at = stoa_now() + $2 WHERE holder = $1 AND call IN (`+strings.Join(placeholders, ", ")+`)`, args...)
		if err := s.db.Platform().Do(ctx, &b); err != nil {
			return fmt.Errorf("renew reservations: %w", err)
		}
	}
	return nil
}

// expiredReservation is the key of a reservation that was not renewed in time.
type expiredReservation struct{ tenant, call string }

// ExpireReservations ends expired reservations of any process and returns what they had reserved. If such a call left a
// usage row, the balance counts it. Any number of processes may do so at once. It ends at most 1000 at a time.
func (s *Service) ExpireReservations(ctx context.Context) error {
	var found []expiredReservation
	var b db.Batch
	b.Query(func(row db.Row) error {
		var l expiredReservation
		err := row.Scan(&l.tenant, &l.call)
		found = append(found, l)
		return err
	}, `SELECT tenant, call FROM reservation WHERE expires_at < stoa_now() ORDER BY tenant, call LIMIT 1000`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for expired reservations: %w", err)
	}
	var errs []error
	for some := range slices.Chunk(found, expireBatchSize) {
		errs = append(errs, s.expireBatch(ctx, some))
	}
	return errors.Join(errs...)
}

// expireBatchSize is how many reservations one transaction ends: it locks all of their balances.
const expireBatchSize = 200

// balanceKey is the key of a balance: a budget in a window, which begins at since (Unix microseconds).
type balanceKey struct {
	app    db.ID
	budget string
	since  int64
}

// expireBatch ends reservations in one transaction, except those that were settled, renewed or ended meanwhile. It then
// computes each balance they were part of, once: a call may have written its usage row without a settlement.
func (s *Service) expireBatch(ctx context.Context, some []expiredReservation) error {
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		parts := map[balanceKey]bool{}
		for _, l := range some {
			// The condition on expires_at decides again: a renewal since the search keeps the reservation.
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
		// The order in which all transactions lock balances.
		inOrder := func(x, y balanceKey) int {
			return cmp.Or(cmp.Compare(x.app, y.app), cmp.Compare(x.budget, y.budget), cmp.Compare(x.since, y.since))
		}
		for _, p := range slices.SortedFunc(maps.Keys(parts), inOrder) {
			of := s.budgets.budgetsOf(p.app)
			i := slices.IndexFunc(of, func(b Budget) bool { return b.ID == p.budget })
			if i < 0 {
				// The budget is deleted.
				continue
			}
			if _, err := rebuildBalanceTx(ctx, tx, of[i], time.UnixMicro(p.since).UTC()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("end expired reservations: %w", err)
	}
	return nil
}
