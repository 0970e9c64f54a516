package invoice_test

import (
	"testing"

	"stoa/agentsvc/agentsvctest"

	"stoa/billing/amount"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestUsageStays checks that the database refuses to change a usage row, and to delete it while its app exists.
func TestUsageStays(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openPriced(t, d), tenancy.App{ID: tenancy.DefaultID, Name: tenancy.DefaultName}
		agentsvctest.RequireNoErrors(t, usagetest.RecordCalls(t.Context(), s.Usage, app, usagetest.DateIn2026(1, 5), 2))
		for what, on := range map[string]struct {
			h   *db.Handle
			sql string
		}{
			"change by the app":      {d.Tenant(app.ID), `UPDATE usage SET charge = 0 WHERE tenant = $1`},
			"change by the platform": {d.Platform(), `UPDATE usage SET charge = 0 WHERE tenant = $1`},
			"deletion by the app":    {d.Tenant(app.ID), `DELETE FROM usage WHERE tenant = $1`},
		} {
			var b db.Batch
			b.Exec(nil, on.sql, string(app.ID))
			if err := on.h.Do(t.Context(), &b); err == nil {
				t.Errorf("a %s was not refused", what)
			}
		}
		wantTotals(t, s, app, map[string][2]amount.Money{"2026-01 draft": {20, 0}})
	})
}
