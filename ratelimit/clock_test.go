package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy/db"
)

// shiftedBackend is a backend whose clock is ahead.
type shiftedBackend struct {
	*Memory
	ahead time.Duration
}

func (s *shiftedBackend) addCounters(ctx context.Context, tenant db.ID, at func(time.Time) []counter) (outcome, error) {
	out, err := s.Memory.addCounters(ctx, tenant, func(now time.Time) []counter { return at(now.Add(s.ahead)) })
	out.now = out.now.Add(s.ahead)
	return out, err
}

// TestReservationAcrossClocks checks that a reservation is given back in each backend's own window, when midnight is
// between the clocks of two backends.
func TestReservationAcrossClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Now().UTC().Truncate(24 * time.Hour).Add(24*time.Hour - 30*time.Second)))
		rules := []Rule{{Scope: PerApp, Unit: Tokens, Window: Day, Limit: 1000}}
		l := New("acme", RuleSet{Backend: NewMemory(), Rules: rules}, RuleSet{Backend: &shiftedBackend{NewMemory(), time.Minute}, Rules: rules})
		g, err := l.ReserveCall(t.Context(), Caller{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.SettleTokens(t.Context(), Caller{}, 30, ParseTokenReservation(g.Reservation.EncodeText())); err != nil {
			t.Fatal(err)
		}
		g, err = l.ReserveCall(t.Context(), Caller{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range g.States {
			if s.Used != 30 {
				t.Errorf("backend %d counts %d tokens, want 30", i, s.Used)
			}
		}
	})
}
