package signal

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// followFor is how long a process counts as a follower after it said so. It says so again three times as often.
	followFor = 30 * time.Second
	// maxFollowers bounds what is known of the followers in other processes. Who finds no room hears nothing.
	maxFollowers = 100_000
)

// following is what this process follows.
type following struct {
	mu   sync.Mutex
	keys map[Signal]map[*follower]struct{}
}

type follower struct{ hear func(data string) }

// Follow calls hear for what [Bus.Tell] and [Bus.Send] say of a key in other processes, until stop is called: with
// data, or with "" for "look again". A call under way may end after stop. Hear must return at once; it may call the
// bus. The other processes know of it a moment later; what was said before, the follower has to read.
func (b *Bus) Follow(topic, key string, hear func(data string)) (stop func()) {
	if b == nil || b.remote == nil {
		return func() {}
	}
	s, f := Signal{topic, key}, &follower{hear}
	if b.following.add(s, f) {
		b.remote.put("", func(m *mail) { m.follow(s) })
	}
	return func() { b.following.remove(s, f) }
}

// Followed reports whether any process follows anything, as far as this one knows. Where none does there is nothing to
// tell or send, and finding out costs nothing.
func (b *Bus) Followed() bool { return b != nil && b.followers.count.Load() > 0 }

// Tell has the followers of a key in other processes look at it again. Call it after the commit.
func (b *Bus) Tell(topic, key string) {
	if !b.Followed() {
		return
	}
	s := Signal{topic, key}
	for _, peer := range b.followers.of(s) {
		b.remote.put(peer, func(m *mail) { m.tell(s) })
	}
}

// Send brings data to the followers of a key in other processes, if the link carries any and they keep up.
func (b *Bus) Send(topic, key, data string) {
	if !b.Followed() || !b.remote.link.data() {
		return
	}
	s := Signal{topic, key}
	for _, peer := range b.followers.of(s) {
		b.remote.put(peer, func(m *mail) { m.send(s, data) })
	}
}

// Joined has join called for each key of topic that another process begins to follow. It may call the bus. It is to be
// set before [Bus.Run].
func (b *Bus) Joined(topic string, join func(key string)) {
	if b == nil {
		return
	}
	b.followers.mu.Lock()
	defer b.followers.mu.Unlock()
	b.followers.topic, b.followers.join = topic, join
}

func (b *Bus) joined(s Signal) {
	if b.followers.join != nil && b.followers.topic == s.Topic {
		b.followers.join(s.Key)
	}
}

// heard hands on what another process says of a followed key. Who says what nobody here follows is told so.
func (b *Bus) heard(from string, s Signal, data string) {
	if !b.following.hear(s, data) {
		b.remote.put(from, func(m *mail) { m.leave(s) })
	}
}

// renewing says again and again what this process follows, and forgets followers that no longer do.
func (b *Bus) renewing(ctx context.Context) {
	tick := time.NewTicker(followFor / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.announce()
			b.followers.expire()
		}
	}
}

func (b *Bus) announce() {
	for _, s := range b.following.list() {
		b.remote.put("", func(m *mail) { m.follow(s) })
	}
}

// add reports whether the key was not followed before.
func (g *following) add(s Signal, f *follower) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys[s] == nil {
		g.keys[s] = map[*follower]struct{}{}
	}
	g.keys[s][f] = struct{}{}
	return len(g.keys[s]) == 1
}

func (g *following) remove(s Signal, f *follower) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.keys[s], f); len(g.keys[s]) == 0 {
		delete(g.keys, s)
	}
}

func (g *following) list() []Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.keys))
}

// hear tells the followers of a key, or of all, and reports whether there were any.
func (g *following) hear(s Signal, data string) bool {
	all := g.of(s)
	for _, f := range all {
		f.hear(data)
	}
	return len(all) > 0
}

// of lists the followers of what s means.
func (g *following) of(s Signal) []*follower {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.Topic != "" {
		return slices.Collect(maps.Keys(g.keys[s]))
	}
	var all []*follower
	for _, some := range g.keys {
		all = slices.AppendSeq(all, maps.Keys(some))
	}
	return all
}

// followers is what other processes follow, each until a time by this process's clock.
type followers struct {
	count atomic.Int64
	topic string // of join
	join  func(key string)

	mu   sync.RWMutex
	keys map[Signal]map[string]int64
}

func (f *followers) of(s Signal) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Keys(f.keys[s]))
}

func (f *followers) add(peer string, keys [][2]string, joined func(Signal)) {
	until := time.Now().Add(followFor).UnixNano()
	var fresh []Signal
	f.mu.Lock()
	for _, p := range keys {
		s := Signal{p[0], p[1]}
		_, known := f.keys[s][peer]
		if !known {
			if f.count.Load() >= maxFollowers {
				continue
			}
			if f.keys[s] == nil {
				f.keys[s] = map[string]int64{}
			}
			f.count.Add(1)
			fresh = append(fresh, s)
		}
		f.keys[s][peer] = until
	}
	f.mu.Unlock()
	for _, s := range fresh {
		joined(s)
	}
}

func (f *followers) remove(peer string, keys [][2]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range keys {
		f.forget(Signal{p[0], p[1]}, peer)
	}
}

func (f *followers) expire() {
	now := time.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	for s, peers := range f.keys {
		for peer, until := range peers {
			if until < now {
				f.forget(s, peer)
			}
		}
	}
}

// forget drops a follower. f.mu is held.
func (f *followers) forget(s Signal, peer string) {
	if _, ok := f.keys[s][peer]; !ok {
		return
	}
	f.count.Add(-1)
	if delete(f.keys[s], peer); len(f.keys[s]) == 0 {
		delete(f.keys, s)
	}
}
