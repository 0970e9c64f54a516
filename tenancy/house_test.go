package tenancy_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// home is what the tests build of an app.
type home struct {
	config string
	secret string // the one named S
	closed atomic.Int64
}

func (h *home) Close() error {
	h.closed.Add(1)
	return nil
}

type liveHomes = tenancy.Live[*home]

// builder counts and remembers what it builds.
type builder struct {
	mu    sync.Mutex
	built []*home
	hook  func(ctx context.Context, s *tenancy.Snapshot) error // may refuse or delay
}

func (b *builder) build(ctx context.Context, s *tenancy.Snapshot) (*home, error) {
	secret, _ := s.Secret("S")
	h := &home{config: string(s.Config), secret: secret}
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

func (b *builder) set(hook func(ctx context.Context, s *tenancy.Snapshot) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hook = hook
}

func (b *builder) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.built)
}

// open returns how many of what was built is not closed. What was closed twice fails the test.
func (b *builder) open(t testing.TB) int {
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

// house returns a live set of s that runs until the test ends, when everything it built must be closed.
func house(t testing.TB, s *tenancy.Service, b *builder, o tenancy.LiveOptions) *liveHomes {
	t.Helper()
	if b == nil {
		b = &builder{}
	}
	o.Log = slog.New(slog.DiscardHandler)
	l := tenancy.NewLive(s, b.build, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		wantErr(t, <-done, context.Canceled)
		l.Close()
		if n := b.open(t); n != 0 {
			t.Errorf("%d values are open after Close", n)
		}
	})
	return l
}

// enter acquires and fails the test where that fails.
func enter(t testing.TB, l *liveHomes, id db.ID) (*home, *tenancy.App, func()) {
	t.Helper()
	h, app, release, err := l.Acquire(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return h, app, release
}

// visit acquires, releases and returns what it saw.
func visit(t testing.TB, l *liveHomes, id db.ID) (config string, err error) {
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
