package signal_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// TestReconnect cuts the connections: subscribers are told to look at everything, and signals flow again. It cuts
// those of other tests too and so runs before the parallel ones.
func TestReconnect(t *testing.T) {
	cut := func(t *testing.T, link func() signal.Link, kill func()) {
		a, b := signal.New(link(), nil), signal.New(link(), nil)
		atA, atB := listen(t, a, "app"), listen(t, b, "app")
		run(t, a)
		run(t, b)
		kill()
		atA.wait(t, "", 1)
		atB.wait(t, "", 1)
		a.Publish("app", "again")
		atB.wait(t, "again", 0)
	}
	t.Run("postgres", func(t *testing.T) {
		url := dbtest.PostgresURL(t)
		cut(t, func() signal.Link { return signal.Postgres(url) }, func() {
			ctx := context.Background()
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(ctx) }()
			_, err = conn.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			if err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("redis", func(t *testing.T) {
		client := redisClient(t)
		cut(t, func() signal.Link { return signal.Redis(client, "stoa-cut") }, func() {
			if err := client.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Err(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestUnreachable starts with nobody to connect to: Run keeps trying and ends with its context.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := signal.New(signal.Postgres("postgres://nobody@127.0.0.1:1/none?sslmode=disable"), nil)
	h := listen(t, b, "app")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.Publish("app", "here")
	h.wait(t, "here", 0)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want context.Canceled", err)
	}
}
