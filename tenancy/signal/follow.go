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
	// followTTL is how long a process counts as a follower after it said so. It says so again three times as often.
	followTTL = 30 * time.Second
	// maxFollowers bounds what is known of the followers in other processes. Who finds no room hears nothing.
	maxFollowers = 100_000
)

// localFollowers is what this process follows.
type localFollowers struct {
	mu   sync.Mutex
	keys map[Signal]map[*follower]struct{}
}

type follower struct{ callback func(data string) }

// FollowKey calls hear for what [Bus.NotifyFollowers] and [Bus.SendToFollowers] say of a key in other processes, until stop is called: with
// data, or with "" for "look again". A call under way may end after stop. Hear must return at once; it may call the
// bus. The other processes know of it a moment later; what was said before, the follower has to read.
func (b *Bus) FollowKey(topic, key string, callback func(data string)) (stop func()) {
	if b == nil || b.remote == nil {
		return func() {}
	}
	s, f := Signal{topic, key}, &follower{callback}
	if b.localFollowers.addFollower(s, f) {
		b.remote.enqueue("", func(m *pendingSignals) { m.addFollow(s) })
	}
	return func() { b.localFollowers.removeFollower(s, f) }
}

// HasFollowers reports whether any process follows anything, as far as this one knows. Where none does there is nothing to
// tell or send, and finding out costs nothing.
func (b *Bus) HasFollowers() bool { return b != nil && b.remoteFollowers.count.Load() > 0 }

// NotifyFollowers has the followers of a key in other processes look at it again. Call it after the commit.
func (b *Bus) NotifyFollowers(topic, key string) {
	if !b.HasFollowers() {
		return
	}
	s := Signal{topic, key}
	for _, peer := range b.remoteFollowers.peersOf(s) {
		b.remote.enqueue(peer, func(m *pendingSignals) { m.addFollowed(s) })
	}
}

// SendToFollowers brings data to the followers of a key in other processes, if the link carries any and they keep up.
func (b *Bus) SendToFollowers(topic, key, data string) {
	if !b.HasFollowers() || !b.remote.link.carriesData() {
		return
	}
	s := Signal{topic, key}
	for _, peer := range b.remoteFollowers.peersOf(s) {
		b.remote.enqueue(peer, func(m *pendingSignals) { m.addData(s, data) })
	}
}

// OnFollow has join called for each key of topic that another process begins to follow. It may call the bus. It is to be
// set before [Bus.Run].
func (b *Bus) OnFollow(topic string, callback func(key string)) {
	if b == nil {
		return
	}
	b.remoteFollowers.mu.Lock()
	defer b.remoteFollowers.mu.Unlock()
	b.remoteFollowers.followTopic, b.remoteFollowers.onFollow = topic, callback
}

func (b *Bus) handleFollow(s Signal) {
	if b.remoteFollowers.onFollow != nil && b.remoteFollowers.followTopic == s.Topic {
		b.remoteFollowers.onFollow(s.Key)
	}
}

// deliverFollowed hands on what another process says of a followed key. Who says what nobody here follows is told so.
func (b *Bus) deliverFollowed(from string, s Signal, data string) {
	if !b.localFollowers.notifyFollowers(s, data) {
		b.remote.enqueue(from, func(m *pendingSignals) { m.addUnfollow(s) })
	}
}

// renewFollows says again and again what this process follows, and forgets followers that no longer do.
func (b *Bus) renewFollows(ctx context.Context) {
	tick := time.NewTicker(followTTL / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.announceFollows()
			b.remoteFollowers.expirePeers()
		}
	}
}

func (b *Bus) announceFollows() {
	for _, s := range b.localFollowers.listKeys() {
		b.remote.enqueue("", func(m *pendingSignals) { m.addFollow(s) })
	}
}

// addFollower reports whether the key was not followed before.
func (g *localFollowers) addFollower(s Signal, f *follower) (first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys[s] == nil {
		g.keys[s] = map[*follower]struct{}{}
	}
	g.keys[s][f] = struct{}{}
	return len(g.keys[s]) == 1
}

func (g *localFollowers) removeFollower(s Signal, f *follower) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if delete(g.keys[s], f); len(g.keys[s]) == 0 {
		delete(g.keys, s)
	}
}

func (g *localFollowers) listKeys() []Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.keys))
}

// notifyFollowers tells the followers of a key, or of all, and reports whether there were any.
func (g *localFollowers) notifyFollowers(s Signal, data string) bool {
	all := g.followersOf(s)
	for _, f := range all {
		f.callback(data)
	}
	return len(all) > 0
}

// followersOf lists the followers of what s means.
func (g *localFollowers) followersOf(s Signal) []*follower {
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

// remoteFollowers is what other processes follow, each until a time by this process's clock.
type remoteFollowers struct {
	count       atomic.Int64
	followTopic string // of join
	onFollow    func(key string)

	mu   sync.RWMutex
	keys map[Signal]map[string]int64
}

func (f *remoteFollowers) peersOf(s Signal) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Keys(f.keys[s]))
}

func (f *remoteFollowers) addPeer(peer string, keys [][2]string, joined func(Signal)) {
	until := time.Now().Add(followTTL).UnixNano()
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

func (f *remoteFollowers) removePeer(peer string, keys [][2]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range keys {
		f.dropPeer(Signal{p[0], p[1]}, peer)
	}
}

func (f *remoteFollowers) expirePeers() {
	now := time.Now().UnixNano()
	f.mu.Lock()
	defer f.mu.Unlock()
	for s, peers := range f.keys {
		for peer, until := range peers {
			if until < now {
				f.dropPeer(s, peer)
			}
		}
	}
}

// dropPeer drops a follower. f.mu is held.
func (f *remoteFollowers) dropPeer(s Signal, peer string) {
	if _, ok := f.keys[s][peer]; !ok {
		return
	}
	f.count.Add(-1)
	if delete(f.keys[s], peer); len(f.keys[s]) == 0 {
		delete(f.keys, s)
	}
}
