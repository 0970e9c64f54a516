package tenancy_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"stoa/tenancy"
)

// home is what the tests build of an app.
type home struct {
	app    tenancy.App
	config string
	secret string // the one named S
	closed *atomic.Int64
}

func (h *home) Close() error {
	h.closed.Add(1)
	return nil
}

type liveHomes = tenancy.Live[*home]

// settle builds a home of a snapshot.
func settle(_ context.Context, s *tenancy.Snapshot) (*home, error) {
	secret, _ := s.Secret("S")
	return &home{s.App, string(s.Config), secret, new(atomic.Int64)}, nil
}

// house returns a live set of s that runs until the test ends. It builds with build, or plainly.
func house(t testing.TB, s *tenancy.Service, build func(context.Context, *tenancy.Snapshot) (*home, error), o tenancy.LiveOptions) *liveHomes {
	t.Helper()
	if build == nil {
		build = settle
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := tenancy.NewLive(s, build, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		l.Close()
	})
	return l
}
