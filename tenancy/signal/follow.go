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
	// followTTL is how long a process counts as a follower of a key after it announced it. It announces its keys every
	// third of this time.
	followTTL = 30 * time.Second
	// maxFollowers bounds the pairs of key and process that a process knows. A follower beyond it receives no signals
	// and depends on its own look at the database.
	maxFollowers = 100_000
)

// localFollowers holds the followers in this process. mu guards keys.
type localFollowers struct {
	mu   sync.Mutex
	keys map[Signal]map[*follower]struct{}
}

// follower is one call of FollowKey; its address identifies it.
type follower struct{ callback func(data string) }

// FollowKey calls callback, until stop is called, when another process calls [Bus.NotifyFollowers] or
// [Bus.SendToFollowers] for the key: with the data, or with "" if the key is to be read again. A call under way may end
// after stop returns. callback must return at once; it may call the bus. Other processes learn about the follower a
// moment later, so the caller must read the key itself after this call. It does not report changes made in this
// process.
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

// HasFollowers reports whether any other process follows any key, as far as this process knows. It is one atomic load,
// so that callers can skip preparing signals that no process would receive.
func (b *Bus) HasFollowers() bool { return b != nil && b.remoteFollowers.count.Load() > 0 }

// NotifyFollowers makes the followers of a key in other processes read it again. Call it after the commit.
func (b *Bus) NotifyFollowers(topic, key string) {
	if !b.HasFollowers() {
		return
	}
	s := Signal{topic, key}
	for _, peer := range b.remoteFollowers.peersOf(s) {
		b.remote.enqueue(peer, func(m *pendingSignals) { m.addFollowed(s) })
	}
}

// SendToFollowers sends data to the followers of a key in other processes. Data is dropped if the link carries none or
// too much is pending; receivers must be able to do without it.
func (b *Bus) SendToFollowers(topic, key, data string) {
	if !b.HasFollowers() || !b.remote.link.carriesData() {
		return
	}
	s := Signal{topic, key}
	for _, peer := range b.remoteFollowers.peersOf(s) {
		b.remote.enqueue(peer, func(m *pendingSignals) { m.addData(s, data) })
	}
}

// OnFollow makes the bus call callback for each key of topic that another process starts to follow. callback may call
// the bus. Only one topic can be set, before [Bus.Run].
func (b *Bus) OnFollow(topic string, callback func(key string)) {
	if b == nil {
		return
	}
	b.remoteFollowers.mu.Lock()
	defer b.remoteFollowers.mu.Unlock()
	b.remoteFollowers.followTopic, b.remoteFollowers.onFollow = topic, callback
}

// handleFollow calls the function set by OnFollow. It is set before Run and read-only afterwards, so no lock is needed.
func (b *Bus) handleFollow(s Signal) {
	if b.remoteFollowers.onFollow != nil && b.remoteFollowers.followTopic == s.Topic {
		b.remoteFollowers.onFollow(s.Key)
	}
}

// deliverFollowed passes a signal of another process to the followers here. If there are none, it sends that process an
// unfollow: this is how a follower that stopped is removed before its announcement expires.
func (b *Bus) deliverFollowed(from string, s Signal, data string) {
	if !b.localFollowers.notifyFollowers(s, data) {
		b.remote.enqueue(from, func(m *pendingSignals) { m.addUnfollow(s) })
	}
}

// renewFollows announces the followed keys periodically and removes the expired followers of other processes.
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

// announceFollows sends all followed keys to all processes.
func (b *Bus) announceFollows() {
	for _, s := range b.localFollowers.listKeys() {
		b.remote.enqueue("", func(m *pendingSignals) { m.addFollow(s) })
	}
}

// addFollower adds a follower and reports whether the key had none before.
func (l *localFollowers) addFollower(s Signal, f *follower) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys[s] == nil {
		l.keys[s] = map[*follower]struct{}{}
	}
	l.keys[s][f] = struct{}{}
	return len(l.keys[s]) == 1
}

func (l *localFollowers) removeFollower(s Signal, f *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.keys[s], f); len(l.keys[s]) == 0 {
		delete(l.keys, s)
	}
}

func (l *localFollowers) listKeys() []Signal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.keys))
}

// notifyFollowers calls the followers of a key, or all for the zero Signal, and reports whether there were any. It
// calls them without the lock, so that they may call the bus.
func (l *localFollowers) notifyFollowers(s Signal, data string) bool {
	all := l.followersOf(s)
	for _, f := range all {
		f.callback(data)
	}
	return len(all) > 0
}

// followersOf returns the followers of s, all of them for the zero Signal.
func (l *localFollowers) followersOf(s Signal) []*follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.Topic != "" {
		return slices.Collect(maps.Keys(l.keys[s]))
	}
	var all []*follower
	for _, some := range l.keys {
		all = slices.AppendSeq(all, maps.Keys(some))
	}
	return all
}

// remoteFollowers holds what other processes follow.
type remoteFollowers struct {
	// count is the number of pairs of key and process, for HasFollowers.
	count atomic.Int64
	// followTopic and onFollow are set by OnFollow before Run and read-only afterwards.
	followTopic string
	onFollow    func(key string)

	// mu guards keys, which maps a key to the processes that follow it and the time until which they count, in
	// nanoseconds since 1970 by this process's clock.
	mu   sync.RWMutex
	keys map[Signal]map[string]int64
}

// peersOf returns the processes that follow s.
func (f *remoteFollowers) peersOf(s Signal) []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return slices.Collect(maps.Keys(f.keys[s]))
}

// addPeer records that peer follows keys and calls joined for each key that it did not follow before, after releasing
// the lock.
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

// expirePeers removes followers whose announcement is older than followTTL.
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

// dropPeer removes a follower. The caller holds f.mu.
func (f *remoteFollowers) dropPeer(s Signal, peer string) {
	if _, ok := f.keys[s][peer]; !ok {
		return
	}
	f.count.Add(-1)
	if delete(f.keys[s], peer); len(f.keys[s]) == 0 {
		delete(f.keys, s)
	}
}
