package signal_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// followRecorder records the calls of one follower.
type followRecorder struct {
	mu       sync.Mutex
	received []string
	stop     func()
}

func followKey(t *testing.T, b *signal.Bus, key string) *followRecorder {
	f := &followRecorder{}
	f.stop = b.FollowKey("task", key, func(data string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.received = append(f.received, data)
	})
	t.Cleanup(f.stop)
	return f
}

func (f *followRecorder) countReceived(data string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.received {
		if s == data {
			n++
		}
	}
	return n
}

// TestFollow checks that a follower of a key receives that key only, from processes that started before and after it.
func TestFollow(t *testing.T) {
	t.Parallel()
	forEachLink(t, func(t *testing.T, link func() signal.Link) {
		writer, reader, other := signal.New(link(), nil), signal.New(link(), nil), signal.New(link(), nil)
		joined := make(chan string, 10)
		writer.OnFollow("task", func(key string) { joined <- key })
		early := followKey(t, reader, "acme/1") // before any connection is made
		for _, b := range []*signal.Bus{reader, writer, other} {
			startBus(t, b)
		}
		if key := <-joined; key != "acme/1" {
			t.Errorf("%q has a follower, want acme/1", key)
		}
		late := followKey(t, reader, "acme/2")
		if key := <-joined; key != "acme/2" {
			t.Errorf("%q has a follower, want acme/2", key)
		}
		bystander := watchTopic(t, other, "task")
		before := early.countReceived("")
		writer.NotifyFollowers("task", "acme/2")
		writer.NotifyFollowers("task", "acme/3")
		dbtest.WaitUntil(t, "a follower is told", func() bool { return late.countReceived("") > 0 })
		for range 100 {
			writer.NotifyFollowers("task", "acme/1")
		}
		dbtest.WaitUntil(t, "a follower is told", func() bool { return early.countReceived("") > before })
		if n := late.countReceived(""); n > 2 {
			t.Errorf("the follower of a key was signalled %d times, once by its writer", n)
		}
		if n := bystander.countKey("acme/1") + bystander.countKey("acme/2"); n != 0 {
			t.Errorf("who does not follow was signalled %d times", n)
		}

		carries := strings.HasSuffix(t.Name(), "redis")
		long := strings.Repeat("é", 40_000)
		writer.SendToFollowers("task", "acme/1", "words")
		writer.SendToFollowers("task", "acme/1", long)
		notified := early.countReceived("")
		writer.NotifyFollowers("task", "acme/1")
		dbtest.WaitUntil(t, "a follower is told", func() bool { return early.countReceived("") > notified })
		if carries {
			dbtest.WaitUntil(t, "data comes", func() bool { return early.countReceived("words") == 1 && early.countReceived(long) == 1 })
		} else if early.countReceived("words") > 0 {
			t.Error("a link that carries no data brought some")
		}

		// A follower that has stopped is removed when a signal reaches its process.
		early.stop()
		late.stop()
		dbtest.WaitUntil(t, "the writer forgets them", func() bool {
			writer.NotifyFollowers("task", "acme/1")
			writer.NotifyFollowers("task", "acme/2")
			return !writer.HasFollowers()
		})
	})
}

// TestSlow sends data faster than the link can: data beyond the bound is dropped, signals are not.
func TestSlow(t *testing.T) {
	t.Parallel()
	client := newRedisClient(t)
	link := func() signal.Link { return signal.NewRedisLink(client, "stoa-slow") }
	writer, reader := signal.New(link(), nil), signal.New(link(), nil)
	f := followKey(t, reader, "acme/1")
	startBus(t, writer)
	startBus(t, reader)
	dbtest.WaitUntil(t, "the writer knows", writer.HasFollowers)
	notified := f.countReceived("")
	piece := strings.Repeat("x", 10_000)
	began := time.Now()
	for range 10_000 {
		writer.SendToFollowers("task", "acme/1", piece)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("sending took %v: it waits for the reader", took)
	}
	writer.NotifyFollowers("task", "acme/1")
	dbtest.WaitUntil(t, "the signal comes", func() bool { return f.countReceived("") > notified })
	if n := f.countReceived(piece); n == 0 || n == 10_000 {
		t.Errorf("%d of 10,000 pieces came, want some", n)
	}
}

// TestFlush checks that everything published has been sent when Flush returns, although the process ends right after
// it.
func TestFlush(t *testing.T) {
	t.Parallel()
	forEachLink(t, func(t *testing.T, link func() signal.Link) {
		a, b := signal.New(link(), nil), signal.New(link(), nil)
		startBus(t, b)
		h := watchTopic(t, b, "app")
		for i := range 20 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				startBus(t, a)
				a.Publish("app", fmt.Sprint(i))
				a.Flush(t.Context())
			})
			h.waitForKey(t, fmt.Sprint(i), 0)
		}
	})
}

// TestBusWithoutLink calls the methods of a bus without a link and of a nil bus.
func TestBusWithoutLink(t *testing.T) {
	t.Parallel()
	for _, b := range []*signal.Bus{nil, signal.New(nil, nil)} {
		f := followKey(t, b, "acme/1")
		b.Publish("task", "acme/1")
		b.NotifyFollowers("task", "acme/1")
		b.SendToFollowers("task", "acme/1", "words")
		b.Flush(t.Context())
		if b.HasFollowers() || len(f.received) > 0 {
			t.Errorf("a bus that is alone sent %q", f.received)
		}
		b.WatchTopic("task", func(string) {})()
		f.stop()
	}
}

// TestTwoAtOnce sends far more than one message can hold: all of it arrives.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t)
	writer, reader := signal.New(signal.NewPostgresLink(url), nil), signal.New(signal.NewPostgresLink(url), nil)
	var all []*followRecorder
	for i := range 500 {
		all = append(all, followKey(t, reader, fmt.Sprintf("acme/%0100d", i)))
	}
	joined := make(chan string, len(all))
	writer.OnFollow("task", func(key string) { joined <- key })
	startBus(t, writer)
	startBus(t, reader)
	for range all {
		<-joined
	}
	var before []int
	for _, f := range all {
		before = append(before, f.countReceived(""))
	}
	for i := range all {
		writer.NotifyFollowers("task", fmt.Sprintf("acme/%0100d", i))
	}
	for i, f := range all {
		dbtest.WaitUntil(t, "each is told", func() bool { return f.countReceived("") > before[i] })
	}
}
