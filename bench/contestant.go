package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"stoa/bench/contender"
	"stoa/bench/load"
	"stoa/bench/pg"
	"stoa/bench/stoa"
)

// contestant is one way of doing the call.
type contestant struct {
	name string
	run  func(ctx context.Context, conns int) (measure, error)
	stop func()
}

const text = "hello there"

// bare is the reference A2A server. Its store keeps every task, so each run gets a new process.
func (l *lab) bare() contestant {
	return contestant{
		name: "a2a-go " + contender.Version() + ", in memory",
		stop: func() {},
		run: func(ctx context.Context, conns int) (measure, error) {
			p, base, err := l.helper(ctx, "contender")
			if err != nil {
				return measure{}, err
			}
			defer p.Stop()
			t, err := contender.Target(base, text)
			if err != nil {
				return measure{}, err
			}
			return l.drive(ctx, p, t, conns)
		},
	}
}

// product is stoa on the database at url, with one tenant.
func (l *lab) product(ctx context.Context, name, url string) (contestant, error) {
	return l.hosting(ctx, name, url, stoa.Plain("acme"))
}

// hosting is stoa on the database at url, with app as its only tenant.
func (l *lab) hosting(ctx context.Context, name, url string, app stoa.App, env ...string) (contestant, error) {
	s, t, err := l.serving(ctx, url, app, env...)
	if err != nil {
		return contestant{}, err
	}
	return contestant{name: name, stop: s.Stop, run: func(ctx context.Context, conns int) (measure, error) {
		return l.drive(ctx, s.Process, t, conns)
	}}, nil
}

// serving starts stoa on the database at url and returns one blocking call of app, its only tenant.
func (l *lab) serving(ctx context.Context, url string, app stoa.App, env ...string) (*stoa.Server, load.Target, error) {
	s, err := l.stoa(ctx, url, env...)
	if err != nil {
		return nil, load.Target{}, err
	}
	token, err := s.Create(ctx, app)
	if err != nil {
		s.Stop()
		return nil, load.Target{}, err
	}
	t, err := s.Blocking(token, "assistant", text)
	if err != nil {
		s.Stop()
	}
	return s, t, err
}

// onPostgres is stoa on a database of its own.
func (l *lab) onPostgres(ctx context.Context) (contestant, error) {
	database, err := l.database(ctx)
	if err != nil {
		return contestant{}, err
	}
	return l.product(ctx, "stoa, PostgreSQL", l.cluster.URL(database))
}

// onGoverned is stoa on a database of its own, where each call counts against a limit in Redis, metrics are counted, and
// one call in a hundred is traced to a collector that throws everything away.
func (l *lab) onGoverned(ctx context.Context) (contestant, error) {
	database, err := l.database(ctx)
	if err != nil {
		return contestant{}, err
	}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	app := stoa.Plain("acme")
	app.Limits = map[string]any{"rate": []any{
		map[string]any{"per": "app", "type": "count", "window": "minute", "limit": 1_000_000_000},
		map[string]any{"per": "app", "type": "count", "window": "day", "limit": 1_000_000_000},
	}}
	c, err := l.hosting(ctx, "stoa, PostgreSQL, limited and traced", l.cluster.URL(database), app,
		"STOA_METRICS_ADDR=127.0.0.1:0", "OTEL_TRACES_EXPORTER=otlp", "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL,
		"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01")
	if err != nil {
		collector.Close()
		return contestant{}, err
	}
	stop := c.stop
	c.stop = func() { stop(); collector.Close() }
	return c, nil
}

// previous starts a contestant with the binary that the one under test is compared with.
func (l *lab) previous(ctx context.Context, start func(context.Context) (contestant, error)) (contestant, error) {
	current := l.binary
	l.binary = l.against
	defer func() { l.binary = current }()
	c, err := start(ctx)
	c.name += ", previous build"
	return c, err
}

// onUnprotected is stoa on a database whose row-level security was turned off after stoa had made it.
func (l *lab) onUnprotected(ctx context.Context) (contestant, error) {
	database, err := l.database(ctx)
	if err != nil {
		return contestant{}, err
	}
	c, err := l.product(ctx, "stoa, PostgreSQL without row-level security", l.cluster.URL(database))
	if err != nil {
		return contestant{}, err
	}
	n, err := l.cluster.DisableRowSecurity(ctx, database)
	if err == nil && n == 0 {
		err = fmt.Errorf("no table of stoa's has row-level security: there is nothing to turn off")
	}
	if err != nil {
		c.stop()
	}
	return c, err
}

// onSQLite is stoa on a file.
func (l *lab) onSQLite(ctx context.Context) (contestant, error) {
	return l.product(ctx, "stoa, SQLite", l.sqlite())
}

// pgbench is the two transactions alone, in a database that stoa has made.
func (l *lab) pgbench(ctx context.Context) (contestant, error) {
	database, err := l.database(ctx)
	if err != nil {
		return contestant{}, err
	}
	s, err := l.stoa(ctx, l.cluster.URL(database))
	if err != nil {
		return contestant{}, err
	}
	s.Stop()
	b, err := pg.NewBaseline(ctx, l.cluster, database, l.dir)
	if err != nil {
		return contestant{}, err
	}
	return contestant{name: "pgbench, the same two transactions", stop: func() {}, run: func(ctx context.Context, conns int) (measure, error) {
		if _, err := b.Run(ctx, conns, l.span/3); err != nil {
			return measure{}, err
		}
		m := meter{lab: l}
		before := m.read()
		got, err := b.Run(ctx, conns, l.span)
		if err != nil {
			return measure{}, err
		}
		c := m.since(before, got.Calls)
		c.redis, c.load = unknown, got.CPU
		return measure{rps: got.RPS, p50: got.P50, p99: got.P99, cost: c}, nil
	}}, nil
}
