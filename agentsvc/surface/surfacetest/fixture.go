// Package surfacetest is the test harness of the surfaces. [New] serves a surface's routes over real HTTP with
// everything behind them: apps, tokens, a worker pool, billing and the scripted model, on a SQLite database of its
// own. [RunDialogues] replays the recorded requests and answers of testdata/*.txtar, [CheckPage] the examples of a
// documentation page. A [Fixture] ends with its test.
package surfacetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/config/redact"
	"stoa/agentsvc/document/corpus"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/notify"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/runtime"
	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/billing"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
	"stoa/tenancy/router"
	"stoa/tenancy/runtimecache"
	"stoa/tenancy/signal"
)

// Secret is the admin secret of every [Fixture].
const Secret = "an-admin-secret-for-tests-that-is-long-enough"

// Fixture is a running server and the services behind it. New sets all fields except CallMethod; they are
// read-only.
type Fixture struct {
	URL         string // base URL of the server, without a slash at the end
	DB          *db.DB
	Apps        *tenancy.Service
	Issuer      *authz.BuiltInIssuer
	Keys        *authz.APIKeys
	Server      *surface.Server
	Workers     *queue.Pool
	DeadLetters *task.DeadLetters

	Billing *billing.Service
	Log     *Log // log of all services at debug level

	// CallMethod makes the calls of a dialogue (method CALL) over another protocol than HTTP and returns the
	// messages received, each as JSON; the last one may be an error. Tests of such a protocol set it, before
	// RunDialogues uses it.
	CallMethod func(t testing.TB, method, body string, headers ...string) (received []string)
}

// Options configure a Fixture in addition to its routes.
type Options struct {
	Default string                   // configuration of the default app, "" = there is none
	Hosts   []string                 // host patterns of apps, see router.New
	Surface surface.Options          // New fills in the services and the secret
	Formats map[string]notify.Format // notification formats of the routes; nil = no notifications are sent
	// OnDocumentsChanged is that of the runtimes; it may be nil.
	OnDocumentsChanged func(app db.ID)
}

// New returns a server of routes that runs until the end of the test. routes is called before the server starts and
// may keep h, but must not send requests. Services are built in the order of their dependencies, as cmd/stoa does
// it.
func New(t testing.TB, o Options, routes func(h *Fixture) []surface.Route) *Fixture {
	t.Helper()
	h := &Fixture{DB: dbtest.NewSQLite(t), Log: &Log{}}
	log := slog.New(slog.NewTextHandler(h.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	bus := signal.New(nil, log)
	keys, err := keyring.New(bytes.Repeat([]byte{1}, 32))
	must(t, err)
	shared := runtime.Dependencies{
		DB: h.DB, Keys: keys, Hub: task.NewHub(nil), Host: runtime.Host{PublicEgress: egress.New(egress.Options{}), PrivateEgress: egress.New(egress.Options{PrivateNetwork: true})}, RateCounts: ratelimit.NewBackends(h.DB, nil, log), Log: log,
		OnDocumentsChanged: o.OnDocumentsChanged,
	}
	t.Cleanup(func() { shared.PublicEgress.Close(); shared.PrivateEgress.Close() })
	h.Billing, err = billing.Open(t.Context(), h.DB, bus, billing.Options{Log: log})
	must(t, err)
	shared.Billing = h.Billing
	// The pool executes runs in runtimes of the cache, which is built later: the variable breaks the cycle. No run
	// can exist before the server is started.
	var live *runtimecache.Cache[*runtime.Runtime]
	h.Workers = queue.New(h.DB, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		a, _, release, err := live.AcquireRevision(ctx, run.Tenant, run.Revision)
		if err != nil {
			return err
		}
		defer release()
		return a.ExecuteRun(ctx, run, lease)
	}, queue.Options{
		Calls: shared.Hub, Log: log, GiveUp: func(ctx context.Context, run store.Run, reason string) error {
			return h.DeadLetters.GiveUp(ctx, run, reason)
		},
	})
	h.DeadLetters = task.NewDeadLetters(h.DB, shared.Hub, h.Workers.WakeClaimers, task.DeadOptions{})
	shared.Workers = h.Workers
	must(t, h.Workers.Open(t.Context(), true))
	h.Apps = tenancy.New(h.DB, keys, bus, tenancy.Options{
		CheckConfig: func(_ context.Context, src []byte, grants grant.List, _ string, secret func(string) (string, bool)) (warnings []tenancy.Warning, err error) {
			cfg, err := parseConfig(src, grants, secret)
			if err != nil {
				return nil, err
			}
			for _, w := range cfg.Warnings() {
				warnings = append(warnings, tenancy.Warning{Path: w.Path, Line: w.Line, Column: w.Column, Message: w.Message})
			}
			return warnings, nil
		},
		CountDocuments: func(ctx context.Context, app db.ID) (map[string]int, error) {
			return corpus.New(h.DB, app, corpus.Limits{}).Documents.CountByStore(ctx)
		},
		DecodeConfig: document.Decode, MaskConfig: redact.MaskText, RestoreMasked: redact.RestoreText, FlattenConfig: config.LeafValues, Log: log,
	})
	h.Issuer, err = authz.OpenBuiltInIssuer(t.Context(), h.DB, keys, authz.BuiltInIssuerOptions{Log: log})
	must(t, err)
	h.Keys = authz.NewAPIKeys(apikey.NewStore(h.DB, h.Apps), h.Issuer)
	live = runtimecache.New(h.Apps, func(_ context.Context, s *tenancy.Snapshot) (*runtime.Runtime, error) {
		var cfg *config.Config
		var err error // builds run concurrently, so each needs its own
		// The default app's file belongs to the operator: it is parsed without the restrictions of tenants.
		if s.App.ID == tenancy.DefaultID {
			cfg, err = config.Parse(s.Config, config.Options{})
		} else {
			cfg, err = parseConfig(s.Config, s.App.Grants, s.Secret)
		}
		if err != nil {
			return nil, err
		}
		return runtime.Build(cfg, runtime.Tenant{
			ID: s.App.ID, Name: s.App.Name, Revision: s.App.Revision, Limits: s.App.EffectiveLimits(), Plan: s.App.Plan, Hash: s.Hasher.Sum, PrivateNetwork: s.App.ID == tenancy.DefaultID,
			Notifications: runtime.NotificationSettings{PrivateNetwork: s.App.ID == tenancy.DefaultID},
		}, shared)
	}, runtimecache.Options{Log: log})
	t.Cleanup(live.Close)
	router, err := router.New(h.Apps, o.Hosts)
	must(t, err)
	t.Cleanup(router.Close)
	loops := []func(context.Context) error{bus.Run}
	shared.Notifications = &runtime.NotifyOptions{}
	if o.Default != "" {
		h.Apps.DefaultApp.Set("Default", []byte(o.Default))
		cfg, err := config.Parse([]byte(o.Default), config.Options{})
		shared.Notifications.PushEnabled = err == nil && cfg.Server.PushNotifications
	}
	if o.Formats != nil {
		dispatcher := notify.NewDispatcher(h.DB, notify.DispatcherOptions{Formats: o.Formats, Log: log, Notifier: func(ctx context.Context, tenant db.ID) (*notify.Notifier, func(), error) {
			a, _, release, err := live.Acquire(ctx, tenant)
			if err != nil {
				return nil, nil, err
			}
			return a.Notifier(), release, nil
		}})
		shared.Notifications.OnQueued = dispatcher.Wake
		loops = append(loops, dispatcher.Run)
	}
	so := o.Surface
	so.Keys = h.Keys
	so.Verifier, so.AdminSecret, so.Idempotency, so.Router, so.Runtimes, so.Log = authz.NewVerifier(h.Issuer.TrustedIssuer()), Secret, idempotency.New(h.DB, log), router, live, log
	h.Server, err = surface.New(so, routes(h)...)
	must(t, err)
	h.runLoops(t, append(loops, h.Keys.Run, live.Run, h.Workers.Run, h.Billing.Run)...)
	h.startHTTP(t)
	return h
}

// parseConfig parses the configuration of a tenant.
func parseConfig(src []byte, grants grant.List, secret func(string) (string, bool)) (*config.Config, error) {
	return config.Parse(src, config.Options{Lookup: secret, Tenant: true, Grants: grants})
}

// runLoops runs the background loops of the services until the end of the test, which fails if a loop returns an
// error. Runs in progress have a second to finish.
func (f *Fixture) runLoops(t testing.TB, loops ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, loop := range loops {
		wg.Go(func() {
			if err := loop(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("a loop ended: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		drainCtx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		must(t, f.Workers.Drain(drainCtx))
		cancel()
		wg.Wait()
	})
}

// startHTTP serves f.Server. Streams are ended first at the end of the test, because the server waits for open
// requests.
func (f *Fixture) startHTTP(t testing.TB) {
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = f.Server.NewHTTPServer()
	srv.Start()
	f.URL = srv.URL
	t.Cleanup(func() {
		f.Server.EndStreams()
		srv.Close()
	})
}

// CreateApp creates an app from a configuration in YAML.
func (f *Fixture) CreateApp(t testing.TB, name, cfg string) {
	t.Helper()
	_, err := f.Apps.CreateApp(t.Context(), audit.Actor{Name: "test"}, tenancy.Draft{Name: name, Config: []byte(cfg)}, false)
	must(t, err)
}

// MintToken returns a token of the app of that name.
func (f *Fixture) MintToken(t testing.TB, name string, spec authz.TokenSpec) string {
	t.Helper()
	a, err := f.Apps.LoadApp(t.Context(), name)
	must(t, err)
	token, err := f.Issuer.IssueToken(t.Context(), &a, spec)
	must(t, err)
	return token.Text
}

// Do sends a request and returns the response with its whole body; the response's Body is closed. credential is
// sent as a bearer token, "" = none. A string or reader is sent as the body, any other value as JSON. headers are
// pairs of name and value; Host sets the request's host.
func (f *Fixture) Do(t testing.TB, method, path, credential string, body any, headers ...string) (*http.Response, string) {
	t.Helper()
	resp := f.OpenResponse(t, method, path, credential, body, headers...)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(raw)
}

// OpenResponse is Do without reading the body, which the caller must close. Redirects are not followed.
func (f *Fixture) OpenResponse(t testing.TB, method, path, credential string, body any, headers ...string) *http.Response {
	t.Helper()
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	case io.Reader:
		content = b
	default:
		raw, err := json.Marshal(b)
		must(t, err)
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, f.URL+path, content)
	must(t, err)
	if credential != "" {
		req.Header.Set("Authorization", "Bearer "+credential)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
			continue
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	must(t, err)
	return resp
}

// Log collects the log of a Fixture.
type Log struct {
	mu  sync.Mutex // guards buf: many goroutines log
	buf bytes.Buffer
}

// Write appends to the log.
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// String returns the log so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
