package runtimecache_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/runtimecache"
	"stoa/tenancy/tenancytest"
)

// testRuntime is the value that these tests build for an app.
type testRuntime struct {
	config string
	secret string // the value of the secret S
	closed atomic.Int64
}

func (r *testRuntime) Close() error {
	r.closed.Add(1)
	return nil
}

type testCache = runtimecache.Cache[*testRuntime]

// runtimeBuilder counts and records what it builds.
type runtimeBuilder struct {
	mu    sync.Mutex
	built []*testRuntime
	hook  func(ctx context.Context, s *tenancy.Snapshot) error // may fail or delay a build
}

func (b *runtimeBuilder) buildRuntime(ctx context.Context, s *tenancy.Snapshot) (*testRuntime, error) {
	secret, _ := s.Secret("S")
	h := &testRuntime{config: string(s.Config), secret: secret}
	b.mu.Lock()
	hook := b.hook
	b.built = append(b.built, h)
	b.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, s); err != nil {
			h.closed.Add(1)
			return nil, err
		}
	}
	return h, nil
}

func (b *runtimeBuilder) setHook(hook func(ctx context.Context, s *tenancy.Snapshot) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hook = hook
}

func (b *runtimeBuilder) countBuilt() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.built)
}

// countOpen returns how many built values are not closed. It fails the test if one was closed twice.
func (b *runtimeBuilder) countOpen(t testing.TB) int {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i, h := range b.built {
		switch closed := h.closed.Load(); closed {
		case 0:
			n++
		case 1:
		default:
			t.Errorf("value %d was closed %d times", i, closed)
		}
	}
	return n
}

// newTestCache returns a cache of s that runs until the test ends; then every built value must be closed.
func newTestCache(t testing.TB, s *tenancy.Service, b *runtimeBuilder, o runtimecache.Options) *testCache {
	t.Helper()
	if b == nil {
		b = &runtimeBuilder{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := runtimecache.New(s, b.buildRuntime, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		tenancytest.WantErr(t, <-done, context.Canceled)
		l.Close()
		if n := b.countOpen(t); n != 0 {
			t.Errorf("%d values are open after Close", n)
		}
	})
	return l
}

// acquireRuntime acquires a value and fails the test on an error.
func acquireRuntime(t testing.TB, l *testCache, id db.ID) (*testRuntime, *tenancy.App, func()) {
	t.Helper()
	h, app, release, err := l.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h, app, release
}

// acquireConfig acquires and releases a value and returns its configuration.
func acquireConfig(t testing.TB, l *testCache, id db.ID) (config string, err error) {
	t.Helper()
	h, _, release, err := l.Acquire(t.Context(), id)
	defer release()
	if err != nil {
		return "", err
	}
	if h.closed.Load() != 0 {
		t.Error("a closed value was handed out")
	}
	return h.config, nil
}

var errBuild = errors.New("upstream said no")
