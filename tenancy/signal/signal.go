// Package signal says "look again": a [Bus] tells this process at once, and the others through PostgreSQL or Redis,
// that something behind a key of a topic has changed.
//
// There are two ways to listen. [Bus.Watch] hears of every key of a topic, whichever process publishes it: that is for
// what changes seldom or concerns everybody. [Bus.Follow] hears of one key, and only from processes that know somebody
// follows it: that is for what changes often and hardly ever concerns another process. Followed keys may also carry
// data, where the link has room for it.
//
// A signal promises nothing. It may come late, twice, for nothing, or not at all; the database is the truth, and
// whoever is signalled reads it. So a lost connection costs time, never correctness: after one, everybody is told to
// look at everything.
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

// Bus spreads signals. It is safe for concurrent use and its methods never wait for a listener or the network. A nil
// bus reaches nobody.
type Bus struct {
	remote    *outbox // nil: this process only
	following following
	followers followers

	mu       sync.RWMutex
	watching map[string]map[*watcher]struct{}
}

type watcher struct{ look func(key string) }

// New returns a bus that reaches this process alone, or with a link all processes that share it. A bus with a link
// sends and receives while [Bus.Run] runs, and tells log when its connection breaks and when it is back.
func New(link Link, log *slog.Logger) *Bus {
	b := &Bus{watching: map[string]map[*watcher]struct{}{}}
	b.following.keys = map[Signal]map[*follower]struct{}{}
	b.followers.keys = map[Signal]map[string]int64{}
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
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { b.renewing(ctx) })
	return b.remote.run(ctx, b.connected, b.receive)
}

// Publish tells the watchers of topic in every process to look at key again. Call it after the commit, never inside a
// transaction.
func (b *Bus) Publish(topic, key string) {
	if b == nil {
		return
	}
	s := Signal{topic, key}
	b.look(s)
	if b.remote != nil {
		b.remote.put("", func(m *mail) { m.signal(s) })
	}
}

// Flush waits until what was published has left this process, or ctx ends.
func (b *Bus) Flush(ctx context.Context) {
	if b != nil && b.remote != nil {
		b.remote.flush(ctx)
	}
}

// Watch calls look for each signal of topic until stop is called, with the empty key for "look at all of them". It is
// called by the publisher and so must return at once and must not call the bus.
func (b *Bus) Watch(topic string, look func(key string)) (stop func()) {
	if b == nil {
		return func() {}
	}
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

// look tells this process's watchers.
func (b *Bus) look(s Signal) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for topic, watchers := range b.watching {
		key := s.Key
		switch s.Topic {
		case topic:
		case "":
			key = ""
		default:
			continue
		}
		for w := range watchers {
			w.look(key)
		}
	}
}

// connected begins a connection: what happened since the last one is unknown, here and there.
func (b *Bus) connected() {
	b.remote.put("", func(m *mail) { m.hello = true })
	b.announce()
	b.lookAtAll()
}

func (b *Bus) lookAtAll() {
	b.look(Signal{})
	b.following.hear(Signal{}, "")
}

// receive takes in what another process says.
func (b *Bus) receive(m message) {
	b.followers.add(m.From, m.Follow, b.joined)
	b.followers.remove(m.From, m.Leave)
	if m.Hello {
		b.announce()
	}
	for _, p := range m.Signals {
		if s := (Signal{p[0], p[1]}); s.Topic == "" {
			b.lookAtAll()
		} else {
			b.look(s)
		}
	}
	for _, p := range m.Told {
		b.heard(m.From, Signal{p[0], p[1]}, "")
	}
	for _, p := range m.Data {
		b.heard(m.From, Signal{p[0], p[1]}, p[2])
	}
}
