package billing_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/billing"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// flakySink is a sink that can fail before or after it has accepted a batch.
type flakySink struct {
	mu       sync.Mutex
	failures []string // the failures of the next calls: before, after
	batches  map[int64]string
	ids      map[string]int
}

func (r *flakySink) Send(_ context.Context, b billing.ExportBatch) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := ""
	if len(r.failures) > 0 {
		what, r.failures = r.failures[0], r.failures[1:]
	}
	if what == "before" {
		return 0, errors.New("no")
	}
	var content []string
	for _, row := range b.Rows {
		content = append(content, row.ID())
	}
	text := strings.Join(content, " ")
	if before, again := r.batches[b.Number]; again && before != text {
		return 0, fmt.Errorf("batch %d was %s and is %s", b.Number, before, text)
	} else if !again {
		for _, id := range content {
			r.ids[id]++
		}
	}
	r.batches[b.Number] = text
	if what == "after" {
		return 0, errors.New("lost the answer")
	}
	return 0, nil
}

func (r *flakySink) wantRows(t *testing.T, rows int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) != rows {
		t.Errorf("%d rows came, want %d", len(r.ids), rows)
	}
	for id, n := range r.ids {
		if n != 1 {
			t.Errorf("row %s came %d times", id, n)
		}
	}
}

// insertApp inserts the row of an app, without its other data.
func insertApp(t *testing.T, d *db.DB, labels string) tenancy.App {
	t.Helper()
	app := newApp()
	var b db.Batch
	b.Exec(nil, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels, data_key, master_key, created_at, updated_at)
		VALUES ($1, $2, '', 'active', 1, 1, 1, '[]', '', $3, $4, '', 0, 0)`, string(app.ID), app.Name, labels, []byte{1})
	requireNoErrors(t, d.Platform().Do(t.Context(), &b))
	return app
}

// TestExport exports from two processes to a sink that fails sometimes: each row must arrive once, in one batch.
func TestExport(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx := openPriced(t, d), t.Context()
		r := &flakySink{batches: map[int64]string{}, ids: map[string]int{}, failures: []string{"before", "", "after", "after", ""}}
		one, two := s.NewExporter(map[string]billing.Sink{"x": r}), s.NewExporter(map[string]billing.Sink{"x": r})
		apps := []tenancy.App{insertApp(t, d, "{}"), insertApp(t, d, "{}")}
		requireNoErrors(t, recordCalls(ctx, s, apps[0], dateIn2026(1, 1), 3), one.DeliverAll(ctx)) // recorded before the export began
		r.wantRows(t, 0)
		requireNoErrors(t, recordCalls(ctx, s, apps[0], dateIn2026(1, 2), 400), recordCalls(ctx, s, apps[1], dateIn2026(1, 3), 300), recordCalls(ctx, s, tenancy.App{ID: tenancy.DefaultID}, dateIn2026(1, 4), 5))
		for range 4 {
			if err := one.DeliverAll(ctx); err == nil {
				break
			} else if list, lerr := s.ListExports(ctx); lerr != nil || len(list) != 1 || list[0].Error == "" || !list[0].Pending {
				t.Errorf("after %v: %+v, %v", err, list, lerr)
			}
			requireNoErrors(t, two.DeliverAll(ctx)) // the other process has the claim
		}
		r.wantRows(t, 705)
		requireNoErrors(t, one.DeliverAll(ctx), recordCalls(ctx, s, apps[1], dateIn2026(1, 3), 2), one.DeliverAll(ctx))
		r.wantRows(t, 707)
		list, err := s.ListExports(ctx)
		if requireNoErrors(t, err); list[0].Rows != 707 || list[0].Pending || list[0].Error != "" || list[0].Batch != 3 {
			t.Errorf("%+v", list)
		}
		// One process ends within a batch whose outcome is unknown; the other one continues with that batch.
		r.failures = []string{"after"}
		requireNoErrors(t, recordCalls(ctx, s, apps[0], dateIn2026(2, 2), 4))
		if err := one.DeliverAll(ctx); err == nil {
			t.Error("nothing went wrong")
		}
		requireNoErrors(t, recordCalls(ctx, s, apps[0], dateIn2026(2, 2), 4))
		var b db.Batch
		b.Exec(nil, `UPDATE export SET until = 0`)
		requireNoErrors(t, d.Platform().Do(ctx, &b), two.DeliverAll(ctx), one.DeliverAll(ctx))
		r.wantRows(t, 715)
	})
}

// TestExportUnderWay writes usage while it is exported.
func TestExportUnderWay(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app := openPriced(t, d), insertApp(t, d, "{}")
		r := &flakySink{batches: map[int64]string{}, ids: map[string]int{}}
		e := s.NewExporter(map[string]billing.Sink{"x": r})
		requireNoErrors(t, e.DeliverAll(t.Context()))
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 20 {
					if err := recordCalls(t.Context(), s, app, time.Now(), 2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 10 {
			requireNoErrors(t, e.DeliverAll(t.Context()))
		}
		wg.Wait()
		requireNoErrors(t, e.DeliverAll(t.Context()))
		r.wantRows(t, 120)
	})
}

// TestExportRun starts and stops an exporter whose sink always fails.
func TestExportRun(t *testing.T) {
	t.Parallel()
	s := openPriced(t, dbtest.NewSQLite(t))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	e := s.NewExporter(map[string]billing.Sink{"x": &flakySink{failures: slices.Repeat([]string{"before"}, 1000)}})
	if err := e.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// exportCalls writes two calls of an app with a label and exports them to sink.
func exportCalls(t *testing.T, sink billing.Sink) (*billing.Service, error) {
	t.Helper()
	d := dbtest.NewSQLite(t)
	s, app := openPriced(t, d), insertApp(t, d, `{"stripe_customer": "cus_123"}`)
	e := s.NewExporter(map[string]billing.Sink{"out": sink})
	requireNoErrors(t, e.DeliverAll(t.Context()), recordCalls(t.Context(), s, app, time.Now(), 2), recordCalls(t.Context(), s, insertApp(t, d, "{}"), time.Now(), 1))
	return s, e.DeliverAll(t.Context())
}

func TestExportFile(t *testing.T) {
	t.Parallel()
	for _, format := range []billing.FileFormat{billing.NDJSON, billing.CSV} {
		t.Run(string(format), func(t *testing.T) {
			folder := t.TempDir()
			_, err := exportCalls(t, billing.FileSink{Folder: folder, Format: format})
			requireNoErrors(t, err)
			entries, err := os.ReadDir(folder)
			requireNoErrors(t, err)
			if len(entries) != 1 || entries[0].Name() != "out-000000000001."+string(format) {
				t.Fatalf("files %v", entries)
			}
			f, err := os.Open(filepath.Join(folder, entries[0].Name()))
			requireNoErrors(t, err)
			defer f.Close()
			if format == billing.CSV {
				rows, err := csv.NewReader(f).ReadAll()
				requireNoErrors(t, err)
				at := slices.Index(rows[0], "charge")
				if len(rows) != 4 || rows[1][at] != "10" || rows[0][0] != "id" {
					t.Errorf("rows %v", rows)
				}
				return
			}
			n := 0
			for lines := bufio.NewScanner(f); lines.Scan(); n++ {
				var row map[string]any
				requireNoErrors(t, json.Unmarshal(lines.Bytes(), &row))
				if row["charge"] != 10.0 || row["input_tokens"] != 100.0 || row["app"] == "" || row["id"] == "" {
					t.Errorf("row %v", row)
				}
			}
			if n != 3 {
				t.Errorf("%d lines", n)
			}
		})
	}
	_, err := exportCalls(t, billing.FileSink{Folder: "/nowhere", Format: billing.CSV})
	if err == nil {
		t.Error("a folder that is not there will do")
	}
}

// TestExportWebhook verifies the requests as a receiver would.
func TestExportWebhook(t *testing.T) {
	t.Parallel()
	secret, err := billing.ParseWebhookSecret("whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567")))
	requireNoErrors(t, err)
	for _, bad := range []string{"", "whsec_", "whsec_short", "0123456789abcdef01234567"} {
		_, err := billing.ParseWebhookSecret(bad)
		wantInvalid(t, err, "secret")
	}
	status := http.StatusServiceUnavailable
	var ids []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want {
			t.Errorf("signature %s, want %s", r.Header.Get("webhook-signature"), want)
		}
		var event struct {
			Type string
			Data struct{ Rows []map[string]any }
		}
		if err := json.Unmarshal(body, &event); err != nil || event.Type != "usage.recorded" || len(event.Data.Rows) != 3 {
			t.Errorf("body %s, error %v", body, err)
		}
		ids = append(ids, r.Header.Get("webhook-id"))
		w.WriteHeader(status)
	}))
	defer server.Close()
	sink := billing.WebhookSink{URL: server.URL, Secret: secret, Client: server.Client()}
	s, err := exportCalls(t, sink)
	if err == nil || !strings.Contains(err.Error(), "503") {
		t.Fatalf("error %v", err)
	}
	status = http.StatusNoContent
	_, err = exportCalls(t, sink)
	if requireNoErrors(t, err); !slices.Equal(ids, []string{"out_1", "out_1"}) {
		t.Errorf("ids %v", ids)
	}
	if list, err := s.ListExports(t.Context()); err != nil || !strings.Contains(list[0].Error, "503") {
		t.Errorf("%+v, %v", list, err)
	}
	server.Close()
	sink.URL += "/?token=canary"
	if _, err := exportCalls(t, sink); err == nil || strings.Contains(err.Error(), "canary") {
		t.Errorf("an address without a server is reported as %v", err)
	}
}

// sinkFunc is a sink that accepts everything.
type sinkFunc func(billing.ExportBatch)

// Send implements [billing.Sink].
func (f sinkFunc) Send(_ context.Context, b billing.ExportBatch) (int, error) {
	f(b)
	return 0, nil
}

// TestExportFairness checks that the rows of an app with little usage wait for one batch of an app with much usage, not
// for all of its batches.
func TestExportFairness(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s, ctx := openPriced(t, d), t.Context()
	of := map[db.ID][]int64{}
	x := s.NewExporter(map[string]billing.Sink{"x": sinkFunc(func(b billing.ExportBatch) {
		for _, r := range b.Rows {
			of[r.AppID] = append(of[r.AppID], b.Number)
		}
	})})
	requireNoErrors(t, x.DeliverAll(ctx))
	var apps []tenancy.App
	for i := range 5 {
		app := insertApp(t, d, "{}")
		apps = append(apps, app)
		requireNoErrors(t, recordCalls(ctx, s, app, dateIn2026(1, 2), []int{1, 1, 1800, 1, 1}[i]))
	}
	requireNoErrors(t, x.DeliverAll(ctx))
	for i, app := range apps {
		if got := of[app.ID]; i != 2 && (len(got) != 1 || got[0] > 2) || i == 2 && len(got) != 1800 {
			t.Errorf("app %d is in the batches %v", i, got)
		}
	}
}

// startStripeMock starts Stripe's mock server and returns its address.
func startStripeMock(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/stripe/stripe-mock@v0.203.0")
	install.Env = append(os.Environ(), "GOBIN="+folder, "GOFLAGS=-mod=mod")
	install.Dir = folder
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED AGAINST STRIPE: stripe-mock v0.203.0 cannot be built: %v\n%s", err, out)
	}
	socket := filepath.Join(folder, "s")
	mock := exec.CommandContext(t.Context(), filepath.Join(folder, "stripe-mock"), "-http-unix", socket)
	requireNoErrors(t, mock.Start())
	t.Cleanup(func() { _ = mock.Process.Kill(); _ = mock.Wait() })
	for range 200 {
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("stripe-mock does not come up")
	return ""
}

// TestExportStripe sends meter events to Stripe's mock server, which validates them by Stripe's OpenAPI description.
func TestExportStripe(t *testing.T) {
	t.Parallel()
	socket := startStripeMock(t)
	var mu sync.Mutex
	var sent []string
	responses := map[string]string{} // by a substring of the request's body
	toMock := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "mock"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil { // of concurrent requests, the others are cancelled when one is refused
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		form, err := url.ParseQuery(string(body))
		if err != nil || r.URL.Path != "/v1/billing/meter_events" || r.Header.Get("Idempotency-Key") != form.Get("identifier") || len(form.Get("identifier")) > 100 {
			t.Errorf("%s %s, error %v", r.URL.Path, body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for part, answer := range responses {
			if strings.Contains(string(body), part) {
				w.WriteHeader(http.StatusBadRequest)
				io.WriteString(w, answer)
				return
			}
		}
		sent = append(sent, form.Get("event_name")+" "+form.Get("payload[stripe_customer_id]")+" "+form.Get("payload[value]"))
		toMock.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer toMock.Transport.(*http.Transport).CloseIdleConnections()
	sink, err := billing.NewStripeSink(server.Client(), "sk_test_123", server.URL, map[string]string{"charge": "stoa_charge", "input_tokens": "stoa_input", "embeddings": "none"})
	requireNoErrors(t, err)
	_, err = exportCalls(t, sink)
	requireNoErrors(t, err)
	slices.Sort(sent)
	if want := []string{"stoa_charge cus_123 10", "stoa_charge cus_123 10", "stoa_input cus_123 100", "stoa_input cus_123 100"}; !slices.Equal(want, sent) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	for code, want := range map[string][2]int64{"resource_already_exists": {3, 0}, "resource_missing": {1, 2}} {
		responses["stoa_input"] = `{"error": {"type": "invalid_request_error", "code": "` + code + `", "message": "no"}}`
		s, err := exportCalls(t, sink)
		requireNoErrors(t, err)
		list, err := s.ListExports(t.Context())
		if requireNoErrors(t, err); list[0].Rows != want[0] || list[0].Refused != want[1] {
			t.Errorf("%s: %+v", code, list)
		}
	}
	responses["stoa_input"] = `{"error": {"type": "invalid_request_error", "code": "", "message": "no meter of a secret name"}}`
	if _, err := exportCalls(t, sink); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	for _, events := range []map[string]string{nil, {"tokens": "x"}, {"charge": ""}} {
		_, err := billing.NewStripeSink(server.Client(), "sk_test_123", "", events)
		wantInvalid(t, err, "events")
	}
}
