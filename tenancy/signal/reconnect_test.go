package signal_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// TestReconnect cuts the connections: receivers are asked to read everything again, and signals arrive again.
func TestReconnect(t *testing.T) {
	t.Parallel()
	cut := func(t *testing.T, link func() signal.Link, kill func()) {
		a, b := signal.New(link(), nil), signal.New(link(), nil)
		atA, atB := watchTopic(t, a, "app"), watchTopic(t, b, "app")
		startBus(t, a)
		startBus(t, b)
		kill()
		atA.waitForKey(t, "", 1)
		atB.waitForKey(t, "", 1)
		a.Publish("app", "again")
		atB.waitForKey(t, "again", 0)
	}
	t.Run("postgres", func(t *testing.T) {
		url := dbtest.NewPostgresURL(t)
		cut(t, func() signal.Link { return signal.NewPostgresLink(url) }, func() {
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
		o := *newRedisClient(t).Options()
		o.ClientName = "stoa-cut"
		client := redis.NewClient(&o)
		t.Cleanup(func() { _ = client.Close() })
		cut(t, func() signal.Link { return signal.NewRedisLink(client, "stoa-cut") }, func() {
			all, err := client.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
			if err != nil {
				t.Fatal(err)
			}
			ended := 0
			for line := range strings.Lines(all) {
				if !strings.Contains(line, " name=stoa-cut ") {
					continue // a session of another test or package
				}
				id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
				if err := client.ClientKillByFilter(t.Context(), "ID", id).Err(); err != nil {
					t.Fatal(err)
				}
				ended++
			}
			if ended != 2 {
				t.Errorf("ended %d connections, want those of two processes:\n%s", ended, all)
			}
		})
	})
}

// TestUnreachable starts without a server: Run keeps trying and ends with its context.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	b := signal.New(signal.NewPostgresLink("postgres://nobody@127.0.0.1:1/none?sslmode=disable"), nil)
	h := watchTopic(t, b, "app")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	b.Publish("app", "here")
	h.waitForKey(t, "here", 0)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v, want context.Canceled", err)
	}
}

// TestOutage stops the server for a while: the loss and the restoration are logged once each.
func TestOutage(t *testing.T) {
	t.Parallel()
	client := newRedisClient(t)
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var rejected atomic.Int64
	up := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			near, err := proxy.Accept()
			if err != nil {
				return
			}
			select {
			case <-up:
				wg.Go(func() { relayConnection(near, client.Options().Addr) })
			default:
				rejected.Add(1)
				_ = near.Close()
			}
		}
	})
	through := redis.NewClient(&redis.Options{Addr: proxy.Addr().String(), MaxRetries: -1})
	defer func() { _ = through.Close() }()
	var logs logBuffer
	b := signal.New(signal.NewRedisLink(through, "stoa-outage"), slog.New(slog.NewTextHandler(&logs, nil)))
	// Nothing is published: a process that does nothing counts the outage all the same.
	var failures atomic.Int64
	b.OnFailure(func() { failures.Add(1) })
	h := watchTopic(t, b, "app")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	dbtest.WaitUntil(t, "each failed attempt is reported", func() bool { return failures.Load() > 3 })
	dbtest.WaitUntil(t, "the outage is told", func() bool { return logs.countWord("interrupted") == 1 })
	dbtest.WaitUntil(t, "it is tried several times", func() bool { return rejected.Load() > 3 })
	close(up)
	h.waitForKey(t, "", 0)
	dbtest.WaitUntil(t, "its end is logged", func() bool { return logs.countWord("work again") == 1 })
	cancel()
	<-done
	_ = proxy.Close()
	_ = through.Close()
	wg.Wait()
	if logs.countWord("interrupted") != 1 {
		t.Errorf("an outage was logged more than once:\n%s", logs.text.String())
	}
}

// relayConnection forwards a connection to an address until both sides have closed.
func relayConnection(near net.Conn, to string) {
	defer func() { _ = near.Close() }()
	far, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
	_, _ = io.Copy(near, far)
	_ = near.Close()
	wg.Wait()
}

type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) countWord(word string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), word)
}
