package session_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/session"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// summarizer answers each request with its text and records the requests.
type summarizer struct {
	respond  func(n int64) (string, error)
	requests []string
	calls    atomic.Int64
}

func (s *summarizer) Stream(_ context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	s.requests = append(s.requests, req.Conversation[0].Message.Text())
	text, err := s.respond(s.calls.Add(1))
	return func(yield func(llm.Chunk, error) bool) {
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		_ = yield(llm.Chunk{Text: text}, nil) && yield(llm.Chunk{Usage: &agentsvc.Usage{InputTokens: 7, OutputTokens: 1}, Stop: llm.StopEnd}, nil)
	}
}

func respondWith(text string) func(int64) (string, error) {
	return func(int64) (string, error) { return text, nil }
}

var ana = agentsvc.SessionKey{Owner: agentsvc.Owner{Issuer: "test", Subject: "ana"}, Context: "c"}

// baseRequest returns what a turn of the session passes to its window.
func baseRequest(key agentsvc.SessionKey) llm.Request {
	return llm.Request{RunScope: agentsvc.RunScope{Session: key}}
}

func newSummaryWindow(d *db.DB, m *summarizer) session.SummaryWindow {
	return session.SummaryWindow{
		Agent: "helper", Budget: 100, Threshold: 0.85, Target: 0.7, CountTokens: countBytes, Model: m, Store: store.New(d, "acme").Sessions, Log: slog.New(slog.DiscardHandler),
	}
}

// showEntries runs one step of a turn.
func showEntries(t *testing.T, f windowFunc, entries []agentsvc.Entry) (string, []agentsvc.Usage) {
	t.Helper()
	out, usage, err := f(t.Context(), entries)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(formatEntries(out), " "), usage
}

// TestSummaryIsMadeOnce checks what a long conversation becomes, and that the next turn uses the stored summary.
func TestSummaryIsMadeOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		m := &summarizer{respond: respondWith("NOTES")}
		w := newSummaryWindow(d, m)
		long := strings.Repeat("x", 16) // 20 tokens with the overhead of a message
		all := parseEntries("1 u:"+long, "1 a:"+long, "2 u:"+long, "2 a:"+long, "u:now?")
		want := "u:Summary of our conversation so far:\nNOTES u:" + long + " a:" + long + " u:now?"
		turn := w.Open(baseRequest(ana))
		for range 3 {
			got, usage := showEntries(t, turn, all)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
			if made := usage != nil; made != (m.calls.Load() == 1 && len(m.requests) == 1) && m.calls.Load() > 1 {
				t.Fatalf("usage %v after %d calls", usage, m.calls.Load())
			}
		}
		if got, _ := showEntries(t, w.Open(baseRequest(ana)), all); got != want {
			t.Errorf("the next turn shows %s", got)
		}
		if m.calls.Load() != 1 {
			t.Errorf("the model summed up %d times, want once", m.calls.Load())
		}
		if requested := m.requests[0]; !strings.Contains(requested, "user: "+long+"\nagent: "+long) || strings.Contains(requested, "now?") {
			t.Errorf("asked to sum up %q", requested)
		}
		other := w
		other.Agent = "other"
		if showEntries(t, other.Open(baseRequest(ana)), all); m.calls.Load() != 2 {
			t.Error("another agent reads summaries that are not its own")
		}
	})
}

func TestSummaryUsage(t *testing.T) {
	t.Parallel()
	w := newSummaryWindow(dbtest.NewSQLite(t), &summarizer{respond: respondWith("NOTES")}).Open(baseRequest(ana))
	long := strings.Repeat("x", 40)
	all := parseEntries("1 u:"+long, "1 a:"+long, "u:now?")
	if _, usage := showEntries(t, w, all); len(usage) != 1 || usage[0].InputTokens != 7 {
		t.Errorf("the summary used %v", usage)
	}
	if _, usage := showEntries(t, w, all); usage != nil {
		t.Errorf("without a summary something is used: %v", usage)
	}
}

// TestSummaryBelow checks that a conversation below the threshold is not changed.
func TestSummaryBelow(t *testing.T) {
	t.Parallel()
	m := &summarizer{respond: respondWith("NOTES")}
	got, _ := showEntries(t, newSummaryWindow(dbtest.NewSQLite(t), m).Open(baseRequest(ana)), parseEntries("1 u:"+strings.Repeat("x", 60), "1 a:yes", "u:now?"))
	if m.calls.Load() > 0 || !strings.HasPrefix(got, "u:xxx") {
		t.Errorf("%d summaries, shown %s", m.calls.Load(), got)
	}
}

// TestSummaryOfTurn checks that a turn that is too long by itself is summarized, and that this summary is not stored.
func TestSummaryOfTurn(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	m := &summarizer{respond: respondWith("NOTES")}
	w := newSummaryWindow(d, m)
	turn := w.Open(baseRequest(ana))
	entries := parseEntries("u:question")
	for i := range 12 {
		id := strings.Repeat(string(rune('a'+i)), 8)
		entries = append(entries, parseEntries("c:"+id, "r:"+id)...)
		got, _ := showEntries(t, turn, entries)
		if !strings.Contains(got, "u:question") || !strings.HasSuffix(got, "c:"+id+" r:"+id) {
			t.Fatalf("after %d calls shown %s", i+1, got)
		}
		if len(got) > 160 {
			t.Fatalf("after %d calls %d bytes are shown", i+1, len(got))
		}
	}
	if n := m.calls.Load(); n == 0 || n > 6 {
		t.Errorf("%d summaries for 12 calls", n)
	}
	if sum, err := w.Store.LoadSummary(t.Context(), ana, "helper"); err != nil || sum.Turn != 0 {
		t.Errorf("kept %v %v", sum, err)
	}
}

// TestSummaryFails checks that the end of the conversation is used if no summary can be made.
func TestSummaryFails(t *testing.T) {
	t.Parallel()
	for name, respond := range map[string]func(int64) (string, error){
		"an error": func(int64) (string, error) { return "", errors.New("down") },
		"silence":  respondWith(""),
	} {
		long := strings.Repeat("x", 40)
		got, _ := showEntries(t, newSummaryWindow(dbtest.NewSQLite(t), &summarizer{respond: respond}).Open(baseRequest(ana)), parseEntries("1 u:"+long, "1 a:"+long, "2 u:last", "2 a:yes", "u:now?"))
		if got != "u:last a:yes u:now?" {
			t.Errorf("%s: shown %s", name, got)
		}
	}
}

// TestSummaryRace summarizes in two turns at once: the summary that covers more is kept.
func TestSummaryRace(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		st := store.New(d, "acme")
		for _, step := range []struct{ sum, want store.Summary }{
			{store.Summary{Turn: 4, Text: "four"}, store.Summary{Turn: 4, Text: "four"}},
			{store.Summary{Turn: 2, Text: "late"}, store.Summary{Turn: 4, Text: "four"}},
			{store.Summary{Turn: 4, Text: "same"}, store.Summary{Turn: 4, Text: "four"}},
			{store.Summary{Turn: 9, Text: "nine"}, store.Summary{Turn: 9, Text: "nine"}},
		} {
			got, err := st.Sessions.SaveSummary(t.Context(), ana, "helper", step.sum)
			if err != nil || got != step.want {
				t.Errorf("kept %v: %v %v, want %v", step.sum, got, err, step.want)
			}
		}
		bob := ana
		bob.Owner.Subject = "bob"
		if got, err := st.Sessions.LoadSummary(t.Context(), bob, "helper"); err != nil || got != (store.Summary{}) {
			t.Errorf("bob reads %v %v", got, err)
		}
		if got, err := store.New(d, "globex").Sessions.LoadSummary(t.Context(), ana, "helper"); err != nil || got != (store.Summary{}) {
			t.Errorf("another tenant reads %v %v", got, err)
		}
	})
}

func TestSummaryNeverSplits(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		all := drawConversation(t)
		w := newSummaryWindow(d, &summarizer{respond: respondWith("NOTES")})
		w.Budget = rapid.IntRange(1, 300).Draw(t, "budget")
		key := ana
		key.Context = agentsvc.ContextID(agentsvc.NewID())
		turn := w.Open(baseRequest(key))
		for range 2 {
			got, _, err := turn(ctx, all)
			if err != nil {
				t.Fatal(err)
			}
			checkWindow(t, all, got)
		}
	})
}
