// Package exporttest exports usage for the tests of sinks.
package exporttest

import (
	"testing"
	"time"

	"stoa/billing/budget/budgettest"
	"stoa/billing/export"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// NewExporter returns an exporter of d, as a process of its own has one.
func NewExporter(d *db.DB, s budgettest.Services, sinks map[string]export.Sink) *export.Exporter {
	return export.New(d, s.Budgets, usagetest.Log).NewExporter(sinks, nil)
}

// ListExports returns the progress of the exports of d.
func ListExports(t testing.TB, d *db.DB) []export.Status {
	t.Helper()
	list, err := export.New(d, nil, usagetest.Log).ListExports(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// ExportCalls writes two calls of an app with a label and one of an app without, and exports them to sink under the
// name out. It returns the database and the error of the delivery.
func ExportCalls(t testing.TB, sink export.Sink) (*db.DB, error) {
	t.Helper()
	d := dbtest.NewSQLite(t)
	s, app := budgettest.OpenPriced(t, d), usagetest.InsertApp(t, d, `{"stripe_customer": "cus_123"}`)
	e := NewExporter(d, s, map[string]export.Sink{"out": sink})
	for _, err := range []error{
		e.DeliverAll(t.Context()), // the export begins
		usagetest.RecordCalls(t.Context(), s.Usage, app, time.Now(), 2),
		usagetest.RecordCalls(t.Context(), s.Usage, usagetest.InsertApp(t, d, "{}"), time.Now(), 1),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return d, e.DeliverAll(t.Context())
}
