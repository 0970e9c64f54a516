package ext

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestDatabase checks the health of databases that answer, refuse, are slow, and do not answer.
func TestDatabase(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	after := func(d time.Duration, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-time.After(d):
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	for _, tt := range []struct {
		name     string
		database func(context.Context) error
		good     []bool // expected results, one per second after the change of the database
	}{
		{"answers", after(time.Millisecond, nil), []bool{true, true, true, true, true, true}},
		{"refuses", after(time.Millisecond, refused), []bool{false, false, false, false, false, false}},
		{"slow", after(3500*time.Millisecond, nil), []bool{true, true, true, true, true, true, true, true}},
		{"silent", after(time.Hour, nil), []bool{true, true, true, true, false, false, false, false, false, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now, queries := after(time.Millisecond, nil), 0
				h := newHealthChecker(Options{Database: func(ctx context.Context) error { queries++; return now(ctx) }})
				for range 3 {
					if err := h.checkDatabase(t.Context()); err != nil || queries != 1 {
						t.Fatalf("asked %d times in a second: %v", queries, err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				now = tt.database
				time.Sleep(time.Second)
				for i, want := range tt.good {
					began := time.Now()
					err := h.checkDatabase(t.Context())
					if (err == nil) != want {
						t.Errorf("after %d s: %v, want good %v", i, err, want)
					}
					if took := time.Since(began); took > pingTimeout {
						t.Errorf("after %d s: answered after %v", i, took)
					}
					time.Sleep(time.Second - time.Since(began))
				}
				time.Sleep(databaseTimeout) // until the last ping has ended
			})
		})
	}
}
