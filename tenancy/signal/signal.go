// Package signal says "look again": a [Bus] tells this process at once, and the others through PostgreSQL or Redis,
// that something behind a key of a topic has changed.
//
// There are two ways to listen. [Bus.WatchTopic] hears of every key of a topic, whichever process publishes it: that is for
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
	remote          *sendQueue // nil: this process only
	localFollowers  localFollowers
	remoteFollowers remoteFollowers

	mu       sync.RWMutex
	watchers map[string]map[*watcher]struct{}
}

type watcher struct{ callback func(key string) }

// New returns a bus that reaches this process alone, or with a link all processes that share it. A bus with a link
// sends and receives while [Bus.Run] runs, and tells log when its connection breaks and when it is back.
func New(link Link, log *slog.Logger) *Bus {
	b := &Bus{watchers: map[string]map[*watcher]struct{}{}}
	b.localFollowers.keys = map[Signal]map[*follower]struct{}{}
	b.remoteFollowers.keys = map[Signal]map[string]int64{}
	if link != nil {
		b.remote = newSendQueue(link, log)
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
	wg.Go(func() { b.renewFollows(ctx) })
	return b.remote.maintainConnection(ctx, b.handleConnected, b.handleMessage)
}

// Publish tells the watchers of topic in every process to look at key again. Call it after the commit, never inside a
// transaction.
func (b *Bus) Publish(topic, key string) {
	if b == nil {
		return
	}
	s := Signal{topic, key}
	b.notifyWatchers(s)
	if b.remote != nil {
		b.remote.enqueue("", func(m *pendingSignals) { m.addSignal(s) })
	}
}

// Flush waits until what was published has left this process, or ctx ends.
func (b *Bus) Flush(ctx context.Context) {
	if b != nil && b.remote != nil {
		b.remote.waitUntilSent(ctx)
	}
}

// WatchTopic calls look for each signal of topic until stop is called, with the empty key for "look at all of them". It is
// called by the publisher and so must return at once and must not call the bus.
func (b *Bus) WatchTopic(topic string, callback func(key string)) (stop func()) {
	if b == nil {
		return func() {}
	}
	w := &watcher{callback}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watchers[topic] == nil {
		b.watchers[topic] = map[*watcher]struct{}{}
	}
	b.watchers[topic][w] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.watchers[topic], w); len(b.watchers[topic]) == 0 {
			delete(b.watchers, topic)
		}
	}
}

// notifyWatchers tells this process's watchers.
func (b *Bus) notifyWatchers(s Signal) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for topic, watchers := range b.watchers {
		key := s.Key
		switch s.Topic {
		case topic:
		case "":
			key = ""
		default:
			continue
		}
		for w := range watchers {
			w.callback(key)
		}
	}
}

// handleConnected begins a connection: what happened since the last one is unknown, here and there.
func (b *Bus) handleConnected() {
	b.remote.enqueue("", func(m *pendingSignals) { m.hello = true })
	b.announceFollows()
	b.notifyAll()
}

func (b *Bus) notifyAll() {
	b.notifyWatchers(Signal{})
	b.localFollowers.notifyFollowers(Signal{}, "")
}

// handleMessage takes in what another process says.
func (b *Bus) handleMessage(m message) {
	b.remoteFollowers.addPeer(m.From, m.Follow, b.handleFollow)
	b.remoteFollowers.removePeer(m.From, m.Unfollow)
	if m.Hello {
		b.announceFollows()
	}
	for _, p := range m.Signals {
		if s := (Signal{p[0], p[1]}); s.Topic == "" {
			b.notifyAll()
		} else {
			b.notifyWatchers(s)
		}
	}
	for _, p := range m.Followed {
		b.deliverFollowed(m.From, Signal{p[0], p[1]}, "")
	}
	for _, p := range m.Data {
		b.deliverFollowed(m.From, Signal{p[0], p[1]}, p[2])
	}
}
