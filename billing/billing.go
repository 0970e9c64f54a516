// Package billing knows what apps use, what that costs and how much of it they may use.
//
// What is used is a row for each fact that was counted ([Usage]): a [Meter] makes rows of the facts of a run, and they
// are written in the transaction of the fact. The rows are the truth; all else can be worked out from them again. What a
// row costs is worked out when it is written, by the price book ([Price], [Book]) in force then.
//
// A [Plan] is what an app is put on: its limits, its models, what it includes. A [Budget] bounds tokens, model calls or money
// in a window, for an app, a part of it or the platform: before each model call a reservation takes what the call can cost
// at most from every budget that applies, afterwards what it did cost takes its place.
//
// Money is whole thousand millionths of a currency (nano-units), and so are prices: nothing here is a fraction.
package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// The topics on which changes are signalled.
const (
	topicPrice  = "price"  // no key: the price book
	topicPlan   = "plan"   // no key: the plans
	topicBudget = "budget" // key: the id of an app, "" = the platform
)

// Options complete a [Service]. The zero value works.
type Options struct {
	Log *slog.Logger
}

// Service is the billing of a platform. It is safe for concurrent use, in any number of processes on one database.
type Service struct {
	db  *db.DB
	bus *signal.Bus
	log *slog.Logger

	book  atomic.Pointer[Book]
	plans atomic.Pointer[map[string]Plan]
	stale sync.Map      // topics to look at again
	wake  chan struct{} // there are some
}

// Open returns the billing in migrated d, with prices and plans as they are. Changes are signalled on bus.
func Open(ctx context.Context, d *db.DB, bus *signal.Bus, o Options) (*Service, error) {
	s := &Service{db: d, bus: bus, log: o.Log, wake: make(chan struct{}, 1)}
	if s.log == nil {
		s.log = slog.Default()
	}
	if err := errors.Join(s.readPrices(ctx), s.readPlans(ctx)); err != nil {
		return nil, fmt.Errorf("open billing: %w", err)
	}
	return s, nil
}

// lookAgain is how long prices and plans are trusted where no signal comes.
const lookAgain = 30 * time.Second

// Run keeps prices and plans current until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	readers := map[string]func(context.Context) error{topicPrice: s.readPrices, topicPlan: s.readPlans}
	for topic := range readers {
		defer s.bus.Watch(topic, func(string) { s.look(topic) })()
	}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-tick.C:
			for topic := range readers {
				s.stale.Store(topic, true)
			}
		}
		for topic, read := range readers {
			if _, stale := s.stale.LoadAndDelete(topic); !stale {
				continue
			}
			if err := read(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "billing goes on with what it knows", "topic", topic, "error", err)
			}
		}
	}
}

// look has a topic read again soon.
func (s *Service) look(topic string) {
	s.stale.Store(topic, true)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// InvalidError says what was wrong with an input, and where. Both may be shown to the caller.
type InvalidError struct {
	Field  string
	Reason string
}

// Error returns "field: reason".
func (e *InvalidError) Error() string { return e.Field + ": " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// What can go wrong with an administrator's call. What wraps one of these may be shown to the caller as it is.
var (
	// ErrNotFound says that there is no such plan or budget.
	ErrNotFound = errors.New("not found")
	// ErrExists says that the name or version is taken.
	ErrExists = errors.New("already exists")
)

func micros(n int64) time.Time { return time.UnixMicro(n).UTC() }
