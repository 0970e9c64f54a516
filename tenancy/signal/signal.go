// Package signal notifies processes that something changed: a [Bus] notifies this process at once, and the others
// through PostgreSQL or Redis, that the data behind a key of a topic has changed.
//
// There are two ways to receive signals. [Bus.WatchTopic] receives every key of a topic from every process; it is for
// changes that are rare or concern every process. [Bus.FollowKey] receives one key, and only from processes that know
// that it is followed; it is for changes that are frequent and rarely concern another process, such as the events of a
// task. Signals for followed keys may also carry data, if the link supports it.
//
// A signal guarantees nothing. It may arrive late, twice, without a change, or never; the database holds the truth, and
// the receiver reads it. A lost connection therefore costs time and never correctness: after it, every receiver is
// signalled to read everything again. Each user of the package must also look at the database from time to time.
//
// How a signal travels: Publish, NotifyFollowers and SendToFollowers call the receivers in this process or add to a
// [sendQueue], which merges what is pending per receiving process. The queue's goroutine packs it into messages and
// hands them to the connection of the [Link]. The receiving process decodes a message and calls its receivers.
package signal

import (
	"context"
	"log/slog"
	"sync"
)

// Signal names what changed: a topic and a key in it. An empty Key stands for all keys of the topic, an empty Topic for
// everything.
type Signal struct {
	Topic string
	Key   string
}

// Bus distributes signals. It is safe for concurrent use, and its methods never wait for a receiver or the network. A
// nil Bus has no receivers.
type Bus struct {
	// remote is the queue to other processes; nil if there are none. It is set by New.
	remote          *sendQueue
	localFollowers  localFollowers
	remoteFollowers remoteFollowers

	// mu guards watchers, which maps a topic to its watchers.
	mu       sync.RWMutex
	watchers map[string]map[*watcher]struct{}
}

// watcher is one call of WatchTopic; its address identifies it.
type watcher struct{ callback func(key string) }

// New returns a bus for this process alone (link is nil), or for all processes that share link. A bus with a link
// exchanges signals while [Bus.Run] runs, and logs when its connection breaks and when it is restored.
func New(link Link, log *slog.Logger) *Bus {
	b := &Bus{watchers: map[string]map[*watcher]struct{}{}}
	b.localFollowers.keys = map[Signal]map[*follower]struct{}{}
	b.remoteFollowers.keys = map[Signal]map[string]int64{}
	if link != nil {
		b.remote = newSendQueue(link, log)
	}
	return b
}

// OnFailure sets the function that is called when the connection to other processes is lost, and after each attempt to
// restore it that fails. It must be called before Run.
func (b *Bus) OnFailure(f func()) {
	if b.remote != nil {
		b.remote.onFailure = f
	}
}

// Run exchanges signals with other processes until ctx ends, whose error it returns. It reconnects after failures.
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

// Publish notifies the watchers of topic in every process that key changed. Call it after the commit, never inside a
// transaction: the receivers read the database at once.
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

// Flush waits until everything published so far has been sent, or ctx ends.
func (b *Bus) Flush(ctx context.Context) {
	if b != nil && b.remote != nil {
		b.remote.waitUntilSent(ctx)
	}
}

// WatchTopic calls callback for each signal of topic until stop is called; the empty key means that every key may have
// changed. callback runs in the publisher's goroutine while the bus is locked: it must return at once and must not call
// the bus.
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

// notifyWatchers calls the watchers in this process that s concerns.
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

// handleConnected is called when a connection is ready. Signals may have been lost in both directions: it announces
// what this process follows, asks the others to do the same, and makes all receivers here read everything again.
func (b *Bus) handleConnected() {
	b.remote.enqueue("", func(m *pendingSignals) { m.hello = true })
	b.announceFollows()
	b.notifyAll()
}

// notifyAll notifies every receiver in this process that everything may have changed.
func (b *Bus) notifyAll() {
	b.notifyWatchers(Signal{})
	b.localFollowers.notifyFollowers(Signal{}, "")
}

// handleMessage processes a message from another process.
func (b *Bus) handleMessage(m message) {
	// Followers come first, so that the functions called below find them.
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
