package billingapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/billingapi"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
	"stoa/billing/price"
	"stoa/billing/usage"
	"stoa/tenancy/audit"
)

// recordUsage creates an app and records one call of each model in January 2026.
func recordUsage(t *testing.T, h *surfacetest.Fixture, name string, models ...string) {
	t.Helper()
	h.CreateApp(t, name, "llms: {m: {provider: scripted}}\nagents: {clerk: {llm: m}}")
	app, err := h.Apps.LoadApp(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	f := usage.RunFacts{Task: "t", Turn: 1, Epoch: 1, Agent: "clerk", Owner: agentsvc.Owner{Issuer: "stoa", Subject: "=1+1"}}
	for _, model := range models {
		f.Events = append(f.Events, agentsvc.Event{Usage: &agentsvc.Usage{
			Call: agentsvc.NewID(), StartedAt: time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC), Provider: "scripted", Model: model, InputTokens: 5,
		}})
	}
	if err := h.Billing.Usage.NewMeter(app.ID, app.Plan).WriteUsage(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// TestUsageCSV reads usage as CSV: the operator with the costs, an app without.
func TestUsageCSV(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	_, err := h.Billing.Prices.AddVersion(t.Context(), audit.Actor{Name: "admin"}, price.Version{
		Version: "one", Currency: "USD", Effective: time.UnixMicro(0), Items: []price.Item{{Kind: price.Charge, Meter: "model_calls", Per: 1, Amount: 10_000_000}},
	})
	if err != nil {
		t.Fatal(err)
	}
	recordUsage(t, h, "acme", "a", "b")
	quantities := "input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,reasoning_tokens,model_calls,tool_calls,runs,run_seconds,embeddings,stored_bytes,unpriced"
	const query = "/usage?from=2026-01-01&to=2026-02-01&group_by=user,model,day"
	token := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana", Roles: []string{"viewer"}})
	for _, tt := range []struct{ path, credential, want string }{
		{
			"/admin/apps/acme", surfacetest.Secret, "user,provider,model,day,currency,charge,cost," + quantities + "\n" +
				"'=1+1,scripted,a,2026-01-15,USD,0.01,0.00,5,0,0,0,0,1,0,0,0,0,0,0\n'=1+1,scripted,b,2026-01-15,USD,0.01,0.00,5,0,0,0,0,1,0,0,0,0,0,0\n",
		},
		{
			"/billing", token, "user,provider,model,day,currency,charge," + quantities + "\n" +
				"'=1+1,scripted,a,2026-01-15,USD,0.01,5,0,0,0,0,1,0,0,0,0,0,0\n'=1+1,scripted,b,2026-01-15,USD,0.01,5,0,0,0,0,1,0,0,0,0,0,0\n",
		},
	} {
		resp, body := h.Do(t, http.MethodGet, tt.path+query, tt.credential, nil, "Accept", "text/csv")
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/csv; charset=utf-8" || !strings.Contains(strings.Join(resp.Header.Values("Vary"), ","), "Accept") {
			t.Errorf("%s: %d %v", tt.path, resp.StatusCode, resp.Header)
		}
		if diff := cmp.Diff(tt.want, body); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.path, diff)
		}
	}
}

// TestUsagePageBound reads the usage of all apps in pages: a page ends before the app whose rows would be too many, and the
// next one begins with it.
func TestUsagePageBound(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, func(h *surfacetest.Fixture) []surface.Route {
		return billingapi.Routes(billingapi.Options{Apps: h.Apps, Keys: h.Keys, Billing: h.Billing, MaxUsageRows: 3})
	})
	recordUsage(t, h, "acme", "a", "b")
	recordUsage(t, h, "beta", "a", "b")
	recordUsage(t, h, "globex", "a", "b", "c", "d") // more than a page on its own
	recordUsage(t, h, "zeta", "a")
	var pages [][]string
	for token := "first"; token != ""; {
		_, body := h.Do(t, http.MethodGet, "/admin/usage?from=2026-01-01&to=2026-02-01&group_by=model&page_token="+strings.TrimPrefix(token, "first"), surfacetest.Secret, nil)
		var page struct {
			Rows          []struct{ App, Model string }
			NextPageToken string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		var rows []string
		for _, row := range page.Rows {
			rows = append(rows, fmt.Sprint(row.App, "/", row.Model))
		}
		pages = append(pages, rows)
		if token = page.NextPageToken; len(pages) > 9 {
			t.Fatal("the pages do not end")
		}
	}
	pages = slices.DeleteFunc(pages, func(rows []string) bool { return len(rows) == 0 })
	want := [][]string{{"acme/a", "acme/b"}, {"beta/a", "beta/b"}, {"globex/a", "globex/b", "globex/c", "globex/d"}, {"zeta/a"}}
	if diff := cmp.Diff(want, pages); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
}
