package billing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReserveGivenUp: who stops waiting for a reservation while somebody else holds the budget leaves it to its writer, which
// may still make it.
func TestReserveGivenUp(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	s := open(t, d)
	add(t, s, acme, calls(5))
	if _, err := s.Allowance(acme.ID, "").Reserve(t.Context(), ask()); err != nil {
		t.Fatal(err)
	}
	held, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- d.Platform().Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE budget_balance SET reserved = reserved`)
			close(held)
			<-release
			return err
		})
	}()
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Allowance(acme.ID, "").Reserve(ctx, ask())
	close(release)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("given up with %v", err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); standing(t, s, acme.ID, "calls") != [2]int64{0, 2}; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("the budget stands at %v", standing(t, s, acme.ID, "calls"))
		}
	}
	wantRight(t, s)
}
