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

// followed gathers what a follower of one key hears.
type followed struct {
	mu   sync.Mutex
	said []string
	stop func()
}

func follow(t *testing.T, b *signal.Bus, key string) *followed {
	f := &followed{}
	f.stop = b.Follow("task", key, func(data string) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.said = append(f.said, data)
	})
	t.Cleanup(f.stop)
	return f
}

func (f *followed) count(data string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.said {
		if s == data {
			n++
		}
	}
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never comes to be that %s", what)
		}
	}
}

// TestFollow: who follows a key hears of it and of no other, from processes that came before and after it.
func TestFollow(t *testing.T) {
	t.Parallel()
	links(t, func(t *testing.T, link func() signal.Link) {
		writer, reader, other := signal.New(link(), nil), signal.New(link(), nil), signal.New(link(), nil)
		joined := make(chan string, 10)
		writer.Joined("task", func(key string) { joined <- key })
		early := follow(t, reader, "acme/1") // before anybody is connected
		for _, b := range []*signal.Bus{reader, writer, other} {
			run(t, b)
		}
		if key := <-joined; key != "acme/1" {
			t.Errorf("%q has a follower, want acme/1", key)
		}
		late := follow(t, reader, "acme/2")
		if key := <-joined; key != "acme/2" {
			t.Errorf("%q has a follower, want acme/2", key)
		}
		aside := listen(t, other, "task")
		before := early.count("")
		writer.Tell("task", "acme/2")
		writer.Tell("task", "acme/3")
		eventually(t, "a follower is told", func() bool { return late.count("") > 0 })
		for range 100 {
			writer.Tell("task", "acme/1")
		}
		eventually(t, "a follower is told", func() bool { return early.count("") > before })
		if n := late.count(""); n > 2 {
			t.Errorf("the follower of a key was told %d times, once by its writer", n)
		}
		if n := aside.count("acme/1") + aside.count("acme/2"); n != 0 {
			t.Errorf("who does not follow was told %d times", n)
		}

		carries := strings.HasSuffix(t.Name(), "redis")
		long := strings.Repeat("é", 40_000)
		writer.Send("task", "acme/1", "words")
		writer.Send("task", "acme/1", long)
		told := early.count("")
		writer.Tell("task", "acme/1")
		eventually(t, "a follower is told", func() bool { return early.count("") > told })
		if carries {
			eventually(t, "data comes", func() bool { return early.count("words") == 1 && early.count(long) == 1 })
		} else if early.count("words") > 0 {
			t.Error("a link that carries no data brought some")
		}

		// A follower that has gone is forgotten when it is told in vain.
		early.stop()
		late.stop()
		eventually(t, "the writer forgets them", func() bool {
			writer.Tell("task", "acme/1")
			writer.Tell("task", "acme/2")
			return !writer.Followed()
		})
	})
}

// TestSlow: what is sent to a process faster than it goes out is dropped past a bound, and the signals are not.
func TestSlow(t *testing.T) {
	t.Parallel()
	client := redisClient(t)
	link := func() signal.Link { return signal.Redis(client, "stoa-slow") }
	writer, reader := signal.New(link(), nil), signal.New(link(), nil)
	f := follow(t, reader, "acme/1")
	run(t, writer)
	run(t, reader)
	eventually(t, "the writer knows", writer.Followed)
	told := f.count("")
	piece := strings.Repeat("x", 10_000)
	began := time.Now()
	for range 10_000 {
		writer.Send("task", "acme/1", piece)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("sending took %v: it waits for the reader", took)
	}
	writer.Tell("task", "acme/1")
	eventually(t, "the signal comes", func() bool { return f.count("") > told })
	if n := f.count(piece); n == 0 || n == 10_000 {
		t.Errorf("%d of 10,000 pieces came, want some", n)
	}
}

// TestFlush: what was published has gone when flush returns, however briefly the process lives on.
func TestFlush(t *testing.T) {
	t.Parallel()
	links(t, func(t *testing.T, link func() signal.Link) {
		a, b := signal.New(link(), nil), signal.New(link(), nil)
		run(t, b)
		h := listen(t, b, "app")
		for i := range 20 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				run(t, a)
				a.Publish("app", fmt.Sprint(i))
				a.Flush(t.Context())
			})
			h.wait(t, fmt.Sprint(i), 0)
		}
	})
}

// TestAlone: a bus without a link, and none at all, have nobody to tell.
func TestAlone(t *testing.T) {
	t.Parallel()
	for _, b := range []*signal.Bus{nil, signal.New(nil, nil)} {
		f := follow(t, b, "acme/1")
		b.Publish("task", "acme/1")
		b.Tell("task", "acme/1")
		b.Send("task", "acme/1", "words")
		b.Flush(t.Context())
		if b.Followed() || len(f.said) > 0 {
			t.Errorf("a bus that is alone told %q", f.said)
		}
		b.Watch("task", func(string) {})()
		f.stop()
	}
}

// TestTwoAtOnce: a process that speaks of far more than one message holds is heard in full.
func TestTwoAtOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	writer, reader := signal.New(signal.Postgres(url), nil), signal.New(signal.Postgres(url), nil)
	var all []*followed
	for i := range 500 {
		all = append(all, follow(t, reader, fmt.Sprintf("acme/%0100d", i)))
	}
	joined := make(chan string, len(all))
	writer.Joined("task", func(key string) { joined <- key })
	run(t, writer)
	run(t, reader)
	for range all {
		<-joined
	}
	var before []int
	for _, f := range all {
		before = append(before, f.count(""))
	}
	for i := range all {
		writer.Tell("task", fmt.Sprintf("acme/%0100d", i))
	}
	for i, f := range all {
		eventually(t, "each is told", func() bool { return f.count("") > before[i] })
	}
}
