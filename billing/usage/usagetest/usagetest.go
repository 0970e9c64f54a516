// Package usagetest opens usage and prices for the tests of the packages of billing.
package usagetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/billing/amount"
	"stoa/billing/change"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Services are the prices and the usage of a database.
type Services struct {
	Feed   *change.Feed
	Prices *price.Service
	Usage  *usage.Service
}

// Log discards everything.
var Log = slog.New(slog.DiscardHandler)

// Open returns the services of d, without prices.
func Open(t testing.TB, d *db.DB) Services {
	t.Helper()
	feed, err := change.Open(t.Context(), d, nil, Log)
	if err != nil {
		t.Fatal(err)
	}
	prices, err := price.Open(t.Context(), d, nil, feed)
	if err != nil {
		t.Fatal(err)
	}
	return Services{feed, prices, usage.New(d, prices, Log)}
}

// OpenPriced returns the services of d after [AddPrices].
func OpenPriced(t testing.TB, d *db.DB) Services {
	t.Helper()
	s := Open(t, d)
	AddPrices(t, s.Prices)
	return s
}

// AddPrices adds a price book in which a model call is charged 10 nano-units and costs 4.
func AddPrices(t testing.TB, prices *price.Service) {
	t.Helper()
	_, err := prices.AddVersion(t.Context(), audit.Actor{Name: "operator"}, price.Version{Version: "1", Currency: "USD", Effective: time.UnixMicro(0), Items: []price.Item{
		ChargeItem("model_calls", "", "", 1, 10), {Kind: price.Cost, Meter: "model_calls", Per: 1, Amount: 4},
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// ChargeItem returns a charge for per units of a meter.
func ChargeItem(meter, provider, model string, per int64, charge amount.Money) price.Item {
	return price.Item{Kind: price.Charge, Meter: meter, Provider: provider, Model: model, Per: per, Amount: charge}
}

// RecordCalls writes model calls of an app at a time. With the prices of [AddPrices] each is charged 10 nano-units.
func RecordCalls(ctx context.Context, u *usage.Service, app tenancy.App, at time.Time, calls int) error {
	f := usage.RunFacts{Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Epoch: 1, Agent: "a"}
	for range calls {
		f.Events = append(f.Events, agentsvc.Event{Usage: &agentsvc.Usage{Call: agentsvc.NewID(), StartedAt: at, Provider: "p", Model: "m", InputTokens: 100}})
	}
	return u.NewMeter(app.ID, app.Plan).WriteUsage(ctx, f)
}

// NewApp returns an app that no test has had. It has no row.
func NewApp() tenancy.App {
	id := agentsvc.NewID()
	return tenancy.App{ID: db.ID(id), Name: "app-" + id}
}

// InsertApp inserts the row of an app, without its other data. labels is a JSON object.
func InsertApp(t testing.TB, d *db.DB, labels string) tenancy.App {
	t.Helper()
	app := NewApp()
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key, created_at, updated_at)
		VALUES ($1, $2, '', 'active', 1, 1, 1, '[]', '', $3, $4, '', 0, 0)`, string(app.ID), app.Name, labels, []byte{1})
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return app
}

// DateIn2026 returns noon of a day.
func DateIn2026(month, day int) time.Time {
	return time.Date(2026, time.Month(month), day, 12, 0, 0, 0, time.UTC)
}
