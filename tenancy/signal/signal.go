// Package signal says "look again": a [Bus] tells whoever subscribed to a topic that something behind a key has
// changed, in this process at once and in the others through PostgreSQL or Redis.
//
// A signal carries no data and promises nothing. It may come late, twice, for nothing, or not at all; the database is
// the truth, and whoever is signalled reads it. So a lost connection costs time, never correctness: after one, every
// subscriber is told to look at everything.
package signal

import (
	"context"
	"log/slog"
	"sync"
)

// Signal names what changed: a kind of thing and which of them. An empty Key means all of the topic, an empty Topic
// everything.
type Signal struct {
	Topic string
	Key   string
}

// Bus spreads signals. It is safe for concurrent use and its methods never wait for a subscriber or the network.
type Bus struct {
	remote *outbox // nil: this process only

	mu       sync.RWMutex
	waiting  map[Signal]map[*Subscription]struct{}
	watching map[string]map[*watcher]struct{}
}

type watcher struct{ look func(key string) }

// New returns a bus that reaches this process alone, or with a link all processes that share it. A bus with a link
// sends and receives while [Bus.Run] runs, and tells log when its connection breaks.
func New(link Link, log *slog.Logger) *Bus {
	b := &Bus{waiting: map[Signal]map[*Subscription]struct{}{}, watching: map[string]map[*watcher]struct{}{}}
	if link != nil {
		b.remote = newOutbox(link, log)
	}
	return b
}

// Run exchanges signals with other processes until ctx ends, over and over through lost connections. It returns the
// reason ctx ended.
func (b *Bus) Run(ctx context.Context) error {
	if b.remote == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return b.remote.run(ctx, b.deliver)
}

// Publish tells the subscribers of topic to look at key again. Call it after the commit, never inside a transaction.
func (b *Bus) Publish(topic, key string) {
	s := Signal{topic, key}
	b.deliver(s)
	if b.remote != nil {
		b.remote.put(s)
	}
}

// Subscribe waits for signals about one key. Close the subscription when done.
func (b *Bus) Subscribe(topic, key string) *Subscription {
	s := &Subscription{bus: b, about: Signal{topic, key}, c: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[s.about] == nil {
		b.waiting[s.about] = map[*Subscription]struct{}{}
	}
	b.waiting[s.about][s] = struct{}{}
	return s
}

// Watch calls look for each signal of topic until stop is called, with the empty key for "look at all of them". It is
// called by the publisher and so must return at once and must not call the bus.
func (b *Bus) Watch(topic string, look func(key string)) (stop func()) {
	w := &watcher{look}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watching[topic] == nil {
		b.watching[topic] = map[*watcher]struct{}{}
	}
	b.watching[topic][w] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.watching[topic], w); len(b.watching[topic]) == 0 {
			delete(b.watching, topic)
		}
	}
}

func (b *Bus) deliver(s Signal) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if s.Topic != "" && s.Key != "" {
		for sub := range b.waiting[s] {
			sub.wake()
		}
	} else {
		for about, subs := range b.waiting {
			if s.Topic == "" || s.Topic == about.Topic {
				for sub := range subs {
					sub.wake()
				}
			}
		}
	}
	if s.Topic != "" {
		b.look(s.Topic, s.Key)
		return
	}
	for topic := range b.watching {
		b.look(topic, "")
	}
}

func (b *Bus) look(topic, key string) {
	for w := range b.watching[topic] {
		w.look(key)
	}
}

// Subscription is a wait for one key's signals.
type Subscription struct {
	bus   *Bus
	about Signal
	c     chan struct{}
}

// C receives when there is reason to look again. Signals that come before anyone receives are one.
func (s *Subscription) C() <-chan struct{} { return s.c }

// Close ends the subscription. It may be called twice.
func (s *Subscription) Close() {
	b := s.bus
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.waiting[s.about], s); len(b.waiting[s.about]) == 0 {
		delete(b.waiting, s.about)
	}
}

func (s *Subscription) wake() {
	select {
	case s.c <- struct{}{}:
	default:
	}
}
