package task

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// CountTopics returns how many topics h holds.
func (h *Hub) CountTopics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

func newChunk(id string, offset int, text string) agentsvc.Event {
	return agentsvc.Event{Chunk: &agentsvc.Chunk{Message: agentsvc.MessageID(id), Offset: offset, Text: text}}
}

func newFact(seq int64, id string) agentsvc.Event {
	return agentsvc.Event{Seq: seq, Message: &agentsvc.Message{ID: agentsvc.MessageID(id)}}
}

func newFinalStatus(seq int64, id string) agentsvc.Event {
	return agentsvc.Event{Seq: seq, Status: &agentsvc.Status{State: agentsvc.InputRequired, Message: &agentsvc.Message{ID: agentsvc.MessageID(id)}}}
}

// TestCursor: the events that a reader sees when events arrive late, twice, in pieces or not at all.
func TestCursor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		in   []agentsvc.Event
		want []string
	}{
		{"in order", []agentsvc.Event{newChunk("m", 0, "ab"), newChunk("m", 2, "cd"), newFact(1, "m")}, []string{"m+0 ab", "m+2 cd", "#1"}},
		{"repeated", []agentsvc.Event{newChunk("m", 0, "ab"), newChunk("m", 0, "ab"), newChunk("m", 2, "c"), newChunk("m", 0, "a")}, []string{"m+0 ab", "m+2 c"}},
		{"overlapping", []agentsvc.Event{newChunk("m", 0, "abc"), newChunk("m", 1, "bcde"), newChunk("m", 3, "def")}, []string{"m+0 abc", "m+3 de", "m+5 f"}},
		{"lost", []agentsvc.Event{newChunk("m", 0, "a"), newChunk("m", 2, "c"), newChunk("m", 3, "d"), newFact(1, "m")}, []string{"m+0 a", "#1"}},
		{"lost and found", []agentsvc.Event{newChunk("m", 0, "a"), newChunk("m", 2, "c"), newChunk("m", 1, "b"), newChunk("m", 2, "c")}, []string{"m+0 a", "m+1 b", "m+2 c"}},
		{"begun before", []agentsvc.Event{newChunk("m", 5, "f"), newChunk("m", 6, "g"), newFact(1, "m")}, []string{"#1"}},
		{"after its fact", []agentsvc.Event{newFact(1, "m"), newChunk("m", 0, "a"), newChunk("m", 1, "b")}, []string{"#1"}},
		{"after the last fact", []agentsvc.Event{newFinalStatus(1, "m"), newChunk("m", 0, "a")}, []string{"#1"}},
		{"two messages", []agentsvc.Event{newChunk("m", 0, "a"), newChunk("n", 0, "x"), newChunk("m", 1, "b"), newFact(1, "m"), newChunk("n", 1, "y")}, []string{"m+0 a", "n+0 x", "m+1 b", "#1", "n+1 y"}},
		{"empty", []agentsvc.Event{newChunk("m", 0, ""), newChunk("m", 0, "a")}, []string{"m+0 a"}},
		{"facts repeated", []agentsvc.Event{newFact(1, "m"), newFact(1, "m"), newFact(2, "n"), newFact(1, "m")}, []string{"#1", "#2"}},
		{"facts lost", []agentsvc.Event{newFact(1, "m"), newFact(3, "o"), newFact(2, "n"), newFact(3, "o")}, []string{"#1", "gap before #3", "#2", "#3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cur := cursor{sentBytes: map[agentsvc.MessageID]int{}}
			var got []string
			for _, ev := range c.in {
				switch next, gap := cur.nextEvent(ev); {
				case gap:
					got = append(got, fmt.Sprintf("gap before #%d", ev.Seq))
				case next == nil:
				case next.Chunk != nil:
					got = append(got, fmt.Sprintf("%s+%d %s", next.Chunk.Message, next.Chunk.Offset, next.Chunk.Text))
				default:
					got = append(got, fmt.Sprintf("#%d", next.Seq))
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestChunksAnyhow: in whatever order chunks arrive, the text that a reader sees is always a prefix of the message.
func TestChunksAnyhow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		fullText := rapid.StringMatching(`[a-zé世 ]{0,40}`).Draw(t, "whole")
		var evs []agentsvc.Event
		for offset := 0; offset < len(fullText); {
			n := rapid.IntRange(1, len(fullText)-offset).Draw(t, "length")
			evs = append(evs, newChunk("m", offset, fullText[offset:offset+n]))
			offset += n
		}
		if len(evs) > 0 {
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(evs)-1), 0, 5).Draw(t, "again") {
				evs = append(evs, evs[i])
			}
		}
		if rapid.Bool().Draw(t, "shuffled") {
			rand.Shuffle(len(evs), func(i, j int) { evs[i], evs[j] = evs[j], evs[i] })
		}
		if rapid.Bool().Draw(t, "merged") {
			evs = joinChunks(evs)
		}
		cur := cursor{sentBytes: map[agentsvc.MessageID]int{}}
		got := ""
		for _, ev := range evs {
			if next, _ := cur.nextEvent(ev); next != nil {
				if next.Chunk.Offset != len(got) {
					t.Fatalf("after %q came offset %d", got, next.Chunk.Offset)
				}
				got += next.Chunk.Text
			}
		}
		if !strings.HasPrefix(fullText, got) {
			t.Fatalf("read %q of %q", got, fullText)
		}
	})
}

// TestMerge: adjacent chunks of a message are joined, and the events of other readers are unchanged.
func TestMerge(t *testing.T) {
	t.Parallel()
	in := []agentsvc.Event{
		newChunk("m", 0, "a"), newChunk("m", 1, "b"), newChunk("m", 2, "c"), newFact(1, "x"), newChunk("m", 3, "d"),
		newChunk("m", 5, "f"), newChunk("n", 6, "g"), newChunk("n", 7, "h"),
	}
	others := append([]agentsvc.Event(nil), in...)
	want := []agentsvc.Event{newChunk("m", 0, "abc"), newFact(1, "x"), newChunk("m", 3, "d"), newChunk("m", 5, "f"), newChunk("n", 6, "gh")}
	if diff := cmp.Diff(want, joinChunks(in)); diff != "" {
		t.Error(diff)
	}
	if others[0].Chunk.Text != "a" || others[6].Chunk.Text != "g" {
		t.Error("another reader's events changed")
	}
}

// TestLagBytes: large events are not kept for a slow reader, however few they are.
func TestLagBytes(t *testing.T) {
	t.Parallel()
	h := NewHub(nil)
	key := topicKey{"acme", "t"}
	r := h.subscribe(key, 0)
	for i := range 100 {
		m := agentsvc.Message{ID: "m", Parts: []agentsvc.Part{agentsvc.TextPart(strings.Repeat("x", 10_000))}}
		h.publishEvents(key, newFact(int64(2*i)+1, "m"), agentsvc.Event{Task: "t", Seq: int64(2*i) + 2, Message: &m})
		var bytes int64
		for _, ev := range h.topics[key].recent.events {
			bytes += ev.ByteSize()
		}
		if bytes > maxRecentBytes {
			t.Fatalf("%d bytes wait for a slow reader", bytes)
		}
	}
	n := r.takeNews()
	if !n.lagged {
		t.Error("the reader gets no signal to read the log")
	}
	var last int64
	for evs := n.events; len(evs) > 0; evs = r.takeEvents() {
		last = evs[len(evs)-1].Seq
	}
	if n := len(h.topics[key].recent.events); last != 200 || n > 0 {
		t.Errorf("the last event is %d, and %d are kept after all were taken", last, n)
	}
	h.publishEvents(key, newFact(300, "m"))
	if n := r.takeNews(); n.lagged || len(n.events) != 1 {
		t.Errorf("afterwards: lagged %v, %d events", n.lagged, len(n.events))
	}
}

// TestLag: a reader that has not taken events which were dropped is marked as lagged once, and then receives new events
// again.
func TestLag(t *testing.T) {
	t.Parallel()
	h := NewHub(nil)
	key := topicKey{"acme", "t"}
	slow, fast := h.subscribe(key, 0), h.subscribe(key, 0)
	read := 0
	for i := range maxRecentEvents + 10 {
		h.publishEvents(key, newFact(int64(i)+1, "m"))
		n := fast.takeNews()
		if read += len(n.events); n.lagged {
			t.Fatal("the fast reader lags")
		}
	}
	if read != maxRecentEvents+10 {
		t.Errorf("the fast reader got %d events", read)
	}
	n := slow.takeNews()
	if !n.lagged || len(n.events) != maxTakenEvents || n.hasLocalWriter {
		t.Errorf("lagged %v, %d events, local %v; want true, %d, false", n.lagged, len(n.events), n.hasLocalWriter, maxTakenEvents)
	}
	for evs := slow.takeEvents(); len(evs) > 0; evs = slow.takeEvents() {
		n.events = append(n.events, evs...)
	}
	if want := maxRecentEvents/2 + 9; len(n.events) != want {
		t.Errorf("the slow reader got %d events, want the last %d", len(n.events), want)
	}
	if n := slow.takeNews(); n.lagged || len(n.events) != 0 {
		t.Errorf("signalled twice: %v, %d events", n.lagged, len(n.events))
	}
	release := h.addWriter(key)
	if !slow.takeNews().hasLocalWriter {
		t.Error("a writer of this process is not noticed")
	}
	for len(slow.wake) > 0 {
		<-slow.wake
	}
	release()
	if len(slow.wake) == 0 {
		t.Error("a writer leaves and no reader gets a signal to poll")
	}
	slow.close()
	fast.close()
	fast.close()
	if n := h.CountTopics(); n != 0 {
		t.Errorf("%d topics are left", n)
	}
	h.publishEvents(key, newFact(1, "m"))
}

// TestSlowReaders: readers that take nothing cost the writer nothing for each event, and share what is kept for them.
func TestSlowReaders(t *testing.T) {
	h := NewHub(nil)
	key := topicKey{"acme", "t"}
	readers := make([]*subscription, 3000)
	for i := range readers {
		readers[i] = h.subscribe(key, 0)
	}
	h.publishEvents(key, newChunk("m", 0, "x")) // wakes them once
	before := readHeap()
	offset := 1
	for range 1000 {
		h.publishEvents(key, newChunk("m", offset, "twenty bytes of text"))
		offset += 20
	}
	if grown := readHeap() - before; grown > 2<<20 {
		t.Errorf("%d KiB are kept for 1,000 events and %d readers", grown>>10, len(readers))
	}
	for _, r := range readers {
		n := r.takeNews()
		if len(n.events) != 1 || len(n.events[0].Chunk.Text) > maxTakenBytes {
			t.Fatalf("the first of %d events has %d bytes", len(n.events), len(n.events[0].Chunk.Text))
		}
	}
	late := h.subscribe(key, 0)
	for _, r := range []*subscription{readers[0], late} {
		text := ""
		for evs := r.takeEvents(); len(evs) > 0; evs = r.takeEvents() {
			for _, ev := range evs {
				text += ev.Chunk.Text
			}
		}
		if want := offset; r == late && len(text) != want || !strings.HasSuffix(text, "twenty bytes of text") {
			t.Errorf("a reader got %d bytes of %d", len(text), want)
		}
	}
}

// TestPacedReaders: the readers of one tenant take events at a bounded rate together, however many they are; a few of
// them, and those of another tenant, do not wait.
func TestPacedReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(nil)
		other := h.subscribe(topicKey{"globex", "t"}, 0)
		for n := 1; n <= 3000; n++ {
			key := topicKey{"acme", agentsvc.TaskID(fmt.Sprint(n % 100))}
			r := h.subscribe(key, 0)
			if n != 1 && n != unpacedReaders && n != unpacedReaders+1 && n != 3000 {
				continue
			}
			began := time.Now()
			r.takePaced(t.Context())
			pause := time.Since(began)
			if maxRate := 1 / readerPause.Seconds() * float64(runtime.GOMAXPROCS(0)); n <= unpacedReaders && pause > 0 || n > unpacedReaders && float64(n)/pause.Seconds() > 1.01*maxRate {
				t.Errorf("%d readers wait for %v", n, pause)
			}
		}
		began := time.Now()
		if other.takePaced(t.Context()); time.Since(began) > 0 {
			t.Errorf("another tenant's reader waits for %v", time.Since(began))
		}
	})
}

// readHeap returns the bytes of the heap that are in use.
func readHeap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestGap: a reader who missed facts of a writer in this process reads them from the log as soon as it sees the gap.
func TestGap(t *testing.T) {
	t.Parallel()
	for name, miss := range map[string]func(h *Hub, key topicKey, evs []agentsvc.Event){
		"before it came": func(h *Hub, key topicKey, evs []agentsvc.Event) { h.publishEvents(key, evs[len(evs)-1]) },
		"while it slept": func(h *Hub, key topicKey, evs []agentsvc.Event) {
			for range maxRecentEvents {
				h.publishEvents(key, newChunk("m", 0, "x"))
			}
			h.publishEvents(key, evs...) // which drops the older ones
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := store.New(dbtest.NewSQLite(t), "acme")
			hub, key := NewHub(nil), topicKey{"acme", "t"}
			logs := New(st, "acme", 1, hub, nil, nil, Options{}).Reader.logs
			run := store.Run{Tenant: "acme", Task: "t", Turn: 1, FirstSeq: 1, Lease: store.Lease{Worker: "w", Epoch: 1, Seq: 1}}
			log := []agentsvc.Event{stampEvent("t", 1, agentsvc.Event{Status: &agentsvc.Status{State: agentsvc.Working}})}
			if err := st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: log}); err != nil {
				t.Fatal(err)
			}
			for i := range int64(3) {
				log = append(log, stampEvent("t", i+2, agentsvc.Event{Usage: &agentsvc.Usage{}}))
			}
			if err := st.Runs.WriteRecord(t.Context(), &run, store.Record{Events: log[1:]}); err != nil {
				t.Fatal(err)
			}
			defer hub.addWriter(key)()
			r := hub.subscribe(key, 0)
			defer r.close()
			miss(hub, key, log[1:])
			ctx, cancel := context.WithTimeout(t.Context(), localPollInterval/2)
			defer cancel()
			var got []agentsvc.Event
			logs.stream(ctx, nil, r, "t", 1, false, func(ev agentsvc.Event, err error) bool {
				if err != nil {
					t.Errorf("after %d facts: %v", len(got), err)
				} else if ev.Chunk == nil {
					got = append(got, ev)
				}
				return err == nil && len(got) < 3
			})
			if diff := cmp.Diff(log[1:], got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
