package signal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchRecorder records the keys that a watcher receives.
type watchRecorder struct {
	mu      sync.Mutex
	keys    map[string]int
	changed chan struct{}
}

func watchTopic(t *testing.T, b *signal.Bus, topic string) *watchRecorder {
	h := &watchRecorder{keys: map[string]int{}, changed: make(chan struct{}, 1)}
	t.Cleanup(b.WatchTopic(topic, func(key string) {
		h.mu.Lock()
		h.keys[key]++
		h.mu.Unlock()
		select {
		case h.changed <- struct{}{}:
		default:
		}
	}))
	return h
}

func (r *watchRecorder) countKey(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keys[key]
}

// waitForKey returns when key was received more than n times.
func (r *watchRecorder) waitForKey(t *testing.T, key string, n int) {
	t.Helper()
	deadline := time.After(time.Minute)
	for r.countKey(key) <= n {
		select {
		case <-r.changed:
		case <-deadline:
			t.Fatalf("no signal about %q", key)
		}
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	b := signal.New(nil, nil)
	var keys []string
	stop := b.WatchTopic("app", func(key string) { keys = append(keys, key) })
	b.Publish("app", "x")
	b.Publish("role", "y")
	b.Publish("app", "")
	b.Publish("", "")
	stop()
	b.Publish("app", "z")
	if want := []string{"x", "", ""}; !slices.Equal(keys, want) {
		t.Errorf("watched %q, want %q", keys, want)
	}
}

// forEachLink runs f with each kind of link that is available on this machine.
func forEachLink(t *testing.T, f func(t *testing.T, link func() signal.Link)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := dbtest.NewPostgresURL(t)
		f(t, func() signal.Link { return signal.NewPostgresLink(url) })
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		client := newRedisClient(t)
		channel := "stoa-" + t.Name()
		f(t, func() signal.Link { return signal.NewRedisLink(client, channel) })
	})
}

func newRedisClient(t *testing.T) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(dbtest.RequireRedisURL(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// startBus runs b and returns when it is connected.
func startBus(t *testing.T, b *signal.Bus) {
	t.Helper()
	h := watchTopic(t, b, "run")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v, want context.Canceled", err)
		}
	})
	h.waitForKey(t, "", 0)
}

func TestProcesses(t *testing.T) {
	t.Parallel()
	forEachLink(t, func(t *testing.T, link func() signal.Link) {
		a, b := signal.New(link(), nil), signal.New(link(), nil)
		atA, atB := watchTopic(t, a, "app"), watchTopic(t, b, "app")
		startBus(t, a)
		startBus(t, b)
		a.Publish("app", "from a")
		b.Publish("app", "from b")
		atB.waitForKey(t, "from a", 0)
		atA.waitForKey(t, "from b", 0)

		odd := []string{"a\tb\n\"c\"", "é😀", strings.Repeat("k", 3000)}
		for _, key := range odd {
			a.Publish("app", key)
		}
		for _, key := range odd {
			atB.waitForKey(t, key, 0)
		}
		all := atB.countKey("")
		a.Publish("app", strings.Repeat("k", 100_000))
		atB.waitForKey(t, "", all)

		for i := range 2000 {
			a.Publish("app", fmt.Sprintf("many-%d", i))
		}
		for i := range 2000 {
			atB.waitForKey(t, fmt.Sprintf("many-%d", i), 0)
		}
		if n := atA.countKey("from a"); n != 1 {
			t.Errorf("the publisher heard itself %d times, want once", n)
		}
	})
}

// TestFlood publishes more than maxPending signals before a connection exists: they become one signal for everything.
func TestFlood(t *testing.T) {
	t.Parallel()
	forEachLink(t, func(t *testing.T, link func() signal.Link) {
		a, b := signal.New(link(), nil), signal.New(link(), nil)
		atB := watchTopic(t, b, "app")
		startBus(t, b)
		all := atB.countKey("")
		for i := range 25_000 {
			a.Publish("app", fmt.Sprint(i))
		}
		startBus(t, a)
		atB.waitForKey(t, "", all)
	})
}
