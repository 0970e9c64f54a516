package stripe_test

import (
	"bytes"
	"context"
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

	"stoa/agentsvc/agentsvctest"

	"stoa/billing/export/exporttest"
	"stoa/billing/export/stripe"
	"stoa/tenancy/db/dbtest"
)

// startStripeMock starts Stripe's mock server and returns its address.
func startStripeMock(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/stripe/stripe-mock@v0.203.0")
	// As bin/stoa is built, so that the standard library comes from Go's cache.
	install.Env = append(os.Environ(), "GOBIN="+folder, "CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath")
	install.Dir = folder
	if out, err := install.CombinedOutput(); err != nil {
		dbtest.SkipMissing(t, fmt.Sprintf("stripe-mock v0.203.0 cannot be built: %v\n%s", err, out))
	}
	socket := filepath.Join(folder, "s")
	mock := exec.CommandContext(t.Context(), filepath.Join(folder, "stripe-mock"), "-http-unix", socket)
	agentsvctest.RequireNoErrors(t, mock.Start())
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

// TestUserAgent checks that Stripe does not learn the library and the machine that send.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.UserAgent()+r.Header.Get("X-Stripe-Client-User-Agent"))
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	sink, err := stripe.New(server.Client(), "sk_test_123", server.URL, map[string]string{"input_tokens": "stoa_input"})
	agentsvctest.RequireNoErrors(t, err)
	_, err = exporttest.ExportCalls(t, sink)
	agentsvctest.RequireNoErrors(t, err)
	if want := []string{"stoa", "stoa"}; !slices.Equal(want, seen) {
		t.Errorf("the requests name %q, want %q", seen, want)
	}
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
	sink, err := stripe.New(server.Client(), "sk_test_123", server.URL, map[string]string{"charge": "stoa_charge", "input_tokens": "stoa_input", "embeddings": "none"})
	agentsvctest.RequireNoErrors(t, err)
	_, err = exporttest.ExportCalls(t, sink)
	agentsvctest.RequireNoErrors(t, err)
	slices.Sort(sent)
	if want := []string{"stoa_charge cus_123 10", "stoa_charge cus_123 10", "stoa_input cus_123 100", "stoa_input cus_123 100"}; !slices.Equal(want, sent) {
		t.Errorf("sent %q, want %q", sent, want)
	}
	for code, want := range map[string][2]int64{"resource_already_exists": {3, 0}, "resource_missing": {1, 2}} {
		responses["stoa_input"] = `{"error": {"type": "invalid_request_error", "code": "` + code + `", "message": "no"}}`
		d, err := exporttest.ExportCalls(t, sink)
		agentsvctest.RequireNoErrors(t, err)
		list := exporttest.ListExports(t, d)
		if list[0].Rows != want[0] || list[0].Refused != want[1] {
			t.Errorf("%s: %+v", code, list)
		}
	}
	responses["stoa_input"] = `{"error": {"type": "invalid_request_error", "code": "", "message": "no meter of a secret name"}}`
	if _, err := exporttest.ExportCalls(t, sink); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("error %v", err)
	}
	for _, events := range []map[string]string{nil, {"tokens": "x"}, {"charge": ""}} {
		_, err := stripe.New(server.Client(), "sk_test_123", "", events)
		agentsvctest.CheckInvalid(t, err, "events")
	}
}
