package billing_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestReadWhileMade: whoever looks at budgets while one is being made does not have the process forget it.
func TestReadWhileMade(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := open(t, d)
		for i := range 20 {
			app := acme
			app.ID = db.ID(fmt.Sprint("app", i))
			var looking sync.WaitGroup
			var made atomic.Bool
			for range 8 {
				looking.Go(func() {
					for !made.Load() {
						if _, err := s.Budgets(t.Context(), app.ID); err != nil {
							t.Error(err)
						}
					}
				})
			}
			add(t, s, app, calls(0))
			made.Store(true)
			looking.Wait()
			var used *agentsvc.ExhaustedError
			if _, err := s.Allowance(app.ID, "").Reserve(t.Context(), ask()); !errors.As(err, &used) {
				t.Errorf("app %d: its budget is forgotten: %v", i, err)
			}
		}
	})
}
