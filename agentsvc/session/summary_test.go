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

// summarizer answers each request with say and remembers what it was asked.
type summarizer struct {
	say   func(n int64) (string, error)
	asked []string
	calls atomic.Int64
}

func (m *summarizer) Stream(_ context.Context, req llm.Request) iter.Seq2[llm.Chunk, error] {
	m.asked = append(m.asked, req.Conversation[0].Message.Text())
	text, err := m.say(m.calls.Add(1))
	return func(yield func(llm.Chunk, error) bool) {
		if err != nil {
			yield(llm.Chunk{}, err)
			return
		}
		_ = yield(llm.Chunk{Text: text}, nil) && yield(llm.Chunk{Usage: &agentsvc.Usage{InputTokens: 7, OutputTokens: 1}, Stop: llm.StopEnd}, nil)
	}
}

func always(text string) func(int64) (string, error) {
	return func(int64) (string, error) { return text, nil }
}

var ana = agentsvc.SessionKey{Owner: agentsvc.Owner{Issuer: "test", Subject: "ana"}, Context: "c"}

func summing(d *db.DB, m *summarizer) session.Summary {
	return session.Summary{
		Agent: "helper", Budget: 100, Threshold: 0.85, Target: 0.7, Count: bytes, Model: m, Store: store.New(d, "acme").Sessions, Log: slog.New(slog.DiscardHandler),
	}
}

// shown runs one step of a turn.
func shown(t *testing.T, f fit, entries []agentsvc.Entry) (string, []agentsvc.Usage) {
	t.Helper()
	out, used, err := f(agentsvc.WithSession(t.Context(), ana), entries)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines(out), " "), used
}

// TestSummaryIsMadeOnce tells what a long conversation becomes, and that the next turn finds the summary.
func TestSummaryIsMadeOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		m := &summarizer{say: always("NOTES")}
		w := summing(d, m)
		long := strings.Repeat("x", 16) // 20 tokens with what every message costs
		all := talk("1 u:"+long, "1 a:"+long, "2 u:"+long, "2 a:"+long, "u:now?")
		want := "u:Summary of our conversation so far:\nNOTES u:" + long + " a:" + long + " u:now?"
		turn := w.Open()
		for range 3 {
			got, used := shown(t, turn, all)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
			if made := used != nil; made != (m.calls.Load() == 1 && len(m.asked) == 1) && m.calls.Load() > 1 {
				t.Fatalf("usage %v after %d calls", used, m.calls.Load())
			}
		}
		if got, _ := shown(t, w.Open(), all); got != want {
			t.Errorf("the next turn shows %s", got)
		}
		if m.calls.Load() != 1 {
			t.Errorf("the model summed up %d times, want once", m.calls.Load())
		}
		if asked := m.asked[0]; !strings.Contains(asked, "user: "+long+"\nagent: "+long) || strings.Contains(asked, "now?") {
			t.Errorf("asked to sum up %q", asked)
		}
		other := w
		other.Agent = "other"
		if shown(t, other.Open(), all); m.calls.Load() != 2 {
			t.Error("another agent reads summaries that are not its own")
		}
	})
}

func TestSummaryUsage(t *testing.T) {
	t.Parallel()
	w := summing(dbtest.SQLite(t), &summarizer{say: always("NOTES")}).Open()
	long := strings.Repeat("x", 40)
	all := talk("1 u:"+long, "1 a:"+long, "u:now?")
	if _, used := shown(t, w, all); len(used) != 1 || used[0].InputTokens != 7 {
		t.Errorf("the summary used %v", used)
	}
	if _, used := shown(t, w, all); used != nil {
		t.Errorf("without a summary something is used: %v", used)
	}
}

// TestSummaryBelow leaves what is below the threshold alone.
func TestSummaryBelow(t *testing.T) {
	t.Parallel()
	m := &summarizer{say: always("NOTES")}
	got, _ := shown(t, summing(dbtest.SQLite(t), m).Open(), talk("1 u:"+strings.Repeat("x", 60), "1 a:yes", "u:now?"))
	if m.calls.Load() > 0 || !strings.HasPrefix(got, "u:xxx") {
		t.Errorf("%d summaries, shown %s", m.calls.Load(), got)
	}
}

// TestSummaryOfTurn sums up within a turn that is too long in itself, and keeps none of it with the session.
func TestSummaryOfTurn(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	m := &summarizer{say: always("NOTES")}
	w := summing(d, m)
	turn := w.Open()
	entries := talk("u:question")
	for i := range 12 {
		id := strings.Repeat(string(rune('a'+i)), 8)
		entries = append(entries, talk("c:"+id, "r:"+id)...)
		got, _ := shown(t, turn, entries)
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
	if sum, err := w.Store.Summary(t.Context(), ana, "helper"); err != nil || sum.Turn != 0 {
		t.Errorf("kept %v %v", sum, err)
	}
}

// TestSummaryFails shows the end of the conversation where no summary can be made.
func TestSummaryFails(t *testing.T) {
	t.Parallel()
	for name, say := range map[string]func(int64) (string, error){
		"an error": func(int64) (string, error) { return "", errors.New("down") },
		"silence":  always(""),
	} {
		long := strings.Repeat("x", 40)
		got, _ := shown(t, summing(dbtest.SQLite(t), &summarizer{say: say}).Open(), talk("1 u:"+long, "1 a:"+long, "2 u:last", "2 a:yes", "u:now?"))
		if got != "u:last a:yes u:now?" {
			t.Errorf("%s: shown %s", name, got)
		}
	}
}

// TestSummaryRace has two turns sum up at once: what covers more stands.
func TestSummaryRace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		st := store.New(d, "acme")
		for _, step := range []struct{ sum, want store.Summary }{
			{store.Summary{Turn: 4, Text: "four"}, store.Summary{Turn: 4, Text: "four"}},
			{store.Summary{Turn: 2, Text: "late"}, store.Summary{Turn: 4, Text: "four"}},
			{store.Summary{Turn: 4, Text: "same"}, store.Summary{Turn: 4, Text: "four"}},
			{store.Summary{Turn: 9, Text: "nine"}, store.Summary{Turn: 9, Text: "nine"}},
		} {
			got, err := st.KeepSummary(t.Context(), ana, "helper", step.sum)
			if err != nil || got != step.want {
				t.Errorf("kept %v: %v %v, want %v", step.sum, got, err, step.want)
			}
		}
		bob := ana
		bob.Owner.Subject = "bob"
		if got, err := st.Summary(t.Context(), bob, "helper"); err != nil || got != (store.Summary{}) {
			t.Errorf("bob reads %v %v", got, err)
		}
		if got, err := store.New(d, "globex").Summary(t.Context(), ana, "helper"); err != nil || got != (store.Summary{}) {
			t.Errorf("another tenant reads %v %v", got, err)
		}
	})
}

func TestSummaryNeverSplits(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		all := conversations(t)
		w := summing(d, &summarizer{say: always("NOTES")})
		w.Budget = rapid.IntRange(1, 300).Draw(t, "budget")
		key := ana
		key.Context = agentsvc.ContextID(agentsvc.NewID())
		turn := w.Open()
		for range 2 {
			got, _, err := turn(agentsvc.WithSession(ctx, key), all)
			if err != nil {
				t.Fatal(err)
			}
			whole(t, all, got)
		}
	})
}
