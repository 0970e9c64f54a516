package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// allEventShapes has an event of every form that a fact can have.
func allEventShapes() []agentsvc.Event {
	parts := []agentsvc.Part{
		agentsvc.TextPart("plain"),
		agentsvc.TextPart(""),
		{Text: "*x*", TextType: "text/markdown"},
		agentsvc.TextPart("NUL \x00, quote \", <tag>, \u2028, 世界, 🙂"),
		{File: &agentsvc.File{Name: "a.txt", MediaType: "text/plain", URI: "https://example.com/a.txt"}},
		{File: &agentsvc.File{Name: "b.bin", MediaType: "application/octet-stream", Bytes: []byte{0, 1, 0xff}}},
		{Data: &agentsvc.Data{MediaType: "application/json", Value: map[string]any{"n": 1.5, "list": []any{true, nil, "x"}}}},
		{Data: &agentsvc.Data{Value: nil}},
		{Data: &agentsvc.Data{Value: ""}},
	}
	full := agentsvc.Message{
		ID: "m", Role: agentsvc.RoleAgent, Parts: parts, PriorMessages: []agentsvc.Message{{Role: agentsvc.RoleUser, Parts: parts}}, Metadata: map[string]any{"model": "x", "deep": map[string]any{"a": []any{1.0}}},
		ToolCalls: []agentsvc.ToolCall{
			{ID: "c1", Name: "one", Arguments: json.RawMessage(`{"city":"Pariſ \u0000","n":12345678901234567890}`)},
			{ID: "c2", Name: "two", Thought: "vendor:sealed"},
		},
	}
	return []agentsvc.Event{
		{Status: &agentsvc.Status{State: agentsvc.Working}},
		{Status: &agentsvc.Status{State: agentsvc.Working, Message: &full}},
		{Message: &full},
		{Message: &agentsvc.Message{Role: agentsvc.RoleUser}},
		{Status: &agentsvc.Status{State: agentsvc.Completed, Message: &agentsvc.Message{Role: agentsvc.RoleAgent, Standalone: true}}},
		{Artifact: &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: "a"}}},
		{Artifact: &agentsvc.ArtifactUpdate{
			Artifact: agentsvc.Artifact{ID: "a", Name: "n", Description: "d", Parts: parts, Metadata: map[string]any{"k": "v"}}, Append: true, Last: true,
		}},
		{Result: &agentsvc.ToolResult{Call: "c1", Name: "one", Text: "sunny"}},
		{Result: &agentsvc.ToolResult{Call: "c2", Name: "two", Text: "no", Failed: true, Took: time.Second}},
		{Usage: &agentsvc.Usage{
			Provider: "p", Model: "m", InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, ReasoningTokens: 1 << 40,
		}},
		{Usage: &agentsvc.Usage{Model: "m", Took: 1500 * time.Microsecond, Retries: 2, Fallback: true}},
		{Usage: &agentsvc.Usage{}},
		{Attempt: &agentsvc.Attempt{Number: 2, Reason: "the model is busy", Delay: time.Second}},
		{Attempt: &agentsvc.Attempt{Number: 3, Reason: "its process stopped", CutOff: true}},
		{Finding: &agentsvc.Finding{Guardrail: "house", Phase: "input", Rule: "length", Action: "block", Severity: "high", Shadow: true}},
		{Sources: &agentsvc.Sources{InPrompt: true, List: []agentsvc.Source{
			{N: 1, Passage: "p", Store: "s", Document: "d", Title: "t", Page: 2, Heading: "h", URL: "https://example.com", Quote: "q"}, {N: 2},
		}}},
		{Frame: "team/writer", Call: &agentsvc.ToolCall{ID: "c1", Name: "one", Arguments: json.RawMessage(`{"a":1}`)}},
		{Call: &agentsvc.ToolCall{ID: "c1", Name: "one", Arguments: json.RawMessage(`{"a":1,"a":{"B":2,"B":[]}}`)}},
		{Decision: &agentsvc.Decision{Call: "c1", Outcome: agentsvc.OutcomeExpired}},
		{Frame: "team/writer", Decision: &agentsvc.Decision{
			Call: "c1", Outcome: agentsvc.OutcomeApproved, By: ana, Message: "m9", Arguments: json.RawMessage(`{"a":2}`), Hash: "h", Comment: "fine",
		}},
	}
}

func TestRoundTrip(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		want := append(openingEvents(run), sequenceEvents(run.Task, 3, allEventShapes()...)...)
		if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 3, allEventShapes()...)}); err != nil {
			t.Fatal(err)
		}
		got := loadLog(t, s, run.Task)
		for i := range want {
			if m := messageOf(want[i]); m != nil {
				m.Task = run.Task
			}
			want[i].At = got[i].At
			if want[i].Status != nil {
				want[i].Status.At = got[i].At
			}
			if diff := cmp.Diff(want[i], got[i]); diff != "" {
				t.Errorf("event %d: wrote -, read +\n%s", i+1, diff)
			}
		}
	})
}

func messageOf(ev agentsvc.Event) *agentsvc.Message {
	if ev.Status != nil {
		return ev.Status.Message
	}
	return ev.Message
}

// TestTimes: a fact is read with the microsecond it was written with.
func TestTimes(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		evs := sequenceEvents(run.Task, 3, messageEvent("x"))
		if err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: evs}); err != nil {
			t.Fatal(err)
		}
		if got := loadLog(t, s, run.Task)[2].At; !got.Equal(evs[0].At) {
			t.Errorf("at %v, want %v", got, evs[0].At)
		}
	})
}

func TestSessionRoundTrip(t *testing.T) {
	forEachEngine(t, func(t *testing.T, _ *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		var want []agentsvc.Entry
		for _, ev := range allEventShapes() {
			if m := messageOf(ev); m != nil {
				want = append(want, agentsvc.Entry{Message: m, Turn: 1})
			}
			if ev.Result != nil {
				want = append(want, agentsvc.Entry{Result: ev.Result, Turn: 1})
			}
		}
		rec := store.Record{Events: sequenceEvents(run.Task, 3, statusEvent(agentsvc.Completed, agentMessage("done"))), EndState: store.Completed, SessionEntries: want}
		if err := s.Runs.WriteRecord(t.Context(), &run, rec); err != nil {
			t.Fatal(err)
		}
		got, err := s.Sessions.Load(t.Context(), ana, "c1")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(agentsvc.Session{Context: "c1", Entries: want}, got); diff != "" {
			t.Errorf("wrote -, read +\n%s", diff)
		}
	})
}

// TestNoFact: an event without a fact, or with one that has no JSON form, is refused and leaves nothing.
func TestNoFact(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *db.DB, s *store.Store) {
		run := createTask(t, s, newRun("w1"))
		before := dumpTables(t, d)
		for _, c := range []struct {
			ev   agentsvc.Event
			want string
		}{
			{agentsvc.Event{}, "holds no fact"},
			{agentsvc.Event{Chunk: &agentsvc.Chunk{Text: "x"}}, "holds no fact"},
			{agentsvc.Event{Message: &agentsvc.Message{Parts: []agentsvc.Part{{Data: &agentsvc.Data{Value: func() {}}}}}}, "unsupported type"},
		} {
			err := s.Runs.WriteRecord(t.Context(), &run, store.Record{Events: sequenceEvents(run.Task, 3, c.ev)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("record %+v: %v, want %q", c.ev, err, c.want)
			}
		}
		if diff := cmp.Diff(before, dumpTables(t, d)); diff != "" {
			t.Errorf("left behind:\n%s", diff)
		}
	})
}
