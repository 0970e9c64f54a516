package agentsvc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

var allStates = []agentsvc.State{
	agentsvc.Submitted, agentsvc.Working, agentsvc.InputRequired, agentsvc.AuthRequired,
	agentsvc.Completed, agentsvc.Failed, agentsvc.Cancelled, agentsvc.Rejected,
}

// TestStateTable: every cell of the state table.
func TestStateTable(t *testing.T) {
	t.Parallel()
	table := []string{
		// to: sub work input auth done fail cancel reject
		"submitted      - x - x - x x x",
		"working        - - x x x x x x",
		"input_required - x - - - x x x",
		"auth_required  - x - - - x x -",
		"completed      - - - - - - - -",
		"failed         - - - - - - - -",
		"cancelled      - - - - - - - -",
		"rejected       - - - - - - - -",
	}
	for i, from := range allStates {
		row := strings.Fields(table[i])
		if row[0] != string(from) {
			t.Fatalf("row %d is of %s, want %s", i, row[0], from)
		}
		for j, to := range allStates {
			if got, want := from.CanBecome(to), row[j+1] == "x"; got != want {
				t.Errorf("%s to %s: %v, want %v", from, to, got, want)
			}
		}
		for _, to := range []agentsvc.State{"", "done", "Working"} {
			if from.CanBecome(to) || to.CanBecome(from) {
				t.Errorf("%s goes to or comes from %q, which is no state", from, to)
			}
		}
	}
}

func TestStateKinds(t *testing.T) {
	t.Parallel()
	for i, s := range allStates {
		if !s.IsValid() {
			t.Errorf("%s is no state", s)
		}
		if got, want := s.IsTerminal(), i >= 4; got != want {
			t.Errorf("%s is terminal: %v", s, got)
		}
		if got, want := s.IsInterrupted(), i == 2 || i == 3; got != want {
			t.Errorf("%s is interrupted: %v", s, got)
		}
	}
	for _, s := range []agentsvc.State{"", "unknown", "COMPLETED"} {
		if s.IsValid() || s.IsTerminal() || s.IsInterrupted() {
			t.Errorf("%q counts as a state", s)
		}
	}
}

func newTextMessage(id, s string) *agentsvc.Message {
	return &agentsvc.Message{ID: agentsvc.MessageID(id), Parts: []agentsvc.Part{agentsvc.TextPart(s)}}
}

func newArtifactUpdate(id, s string, more bool) *agentsvc.ArtifactUpdate {
	return &agentsvc.ArtifactUpdate{Artifact: agentsvc.Artifact{ID: id, Name: s, Parts: []agentsvc.Part{agentsvc.TextPart(s)}}, Append: more}
}

// TestApplyEvent: a log is folded into a task, as a whole and again from every prefix.
func TestApplyEvent(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.UnixMicro(n).UTC() }
	log := []agentsvc.Event{
		{Status: &agentsvc.Status{State: agentsvc.Submitted, Message: newTextMessage("1", "hello")}},
		{Status: &agentsvc.Status{State: agentsvc.Working}},
		{Message: newTextMessage("2", "thinking")},
		{Result: &agentsvc.ToolResult{Call: "c"}},
		{Usage: &agentsvc.Usage{InputTokens: 1}},
		{Artifact: newArtifactUpdate("a", "one", false)},
		{Artifact: newArtifactUpdate("b", "other", true)},
		{Artifact: newArtifactUpdate("a", "two", true)},
		{Artifact: newArtifactUpdate("b", "replaced", false)},
		{Status: &agentsvc.Status{State: agentsvc.Completed, Message: newTextMessage("3", "done")}},
	}
	for i := range log {
		log[i].Seq, log[i].At = int64(i)+1, at(int64(i)+1)
	}
	want := agentsvc.Task{
		ID: "t", Seq: 10, Status: agentsvc.Status{State: agentsvc.Completed, Message: newTextMessage("3", "done"), At: at(10)},
		History: []agentsvc.Message{*newTextMessage("1", "hello"), *newTextMessage("2", "thinking"), *newTextMessage("3", "done")},
		Artifacts: []agentsvc.Artifact{
			{ID: "a", Name: "one", Parts: []agentsvc.Part{agentsvc.TextPart("one"), agentsvc.TextPart("two")}},
			{ID: "b", Name: "replaced", Parts: []agentsvc.Part{agentsvc.TextPart("replaced")}},
		},
	}
	for again := range log {
		task := agentsvc.Task{ID: "t"}
		for _, ev := range slices.Concat(log[:again], log) {
			task.ApplyEvent(ev)
			task.ApplyEvent(agentsvc.Event{Chunk: &agentsvc.Chunk{Text: "live"}})
		}
		if diff := cmp.Diff(want, task); diff != "" {
			t.Errorf("read again from event %d: want -, got +\n%s", again, diff)
		}
	}
}

// TestApplyEventCopiesArtifacts: earlier snapshots do not change when the task continues, nor do two copies that
// continue separately.
func TestApplyEventCopiesArtifacts(t *testing.T) {
	t.Parallel()
	task := agentsvc.Task{Artifacts: make([]agentsvc.Artifact, 0, 8)}
	task.ApplyEvent(agentsvc.Event{Seq: 1, Artifact: newArtifactUpdate("a", "one", false)})
	task.Artifacts[0].Parts = append(make([]agentsvc.Part, 0, 8), task.Artifacts[0].Parts...)
	left, right := task, task
	left.ApplyEvent(agentsvc.Event{Seq: 2, Artifact: newArtifactUpdate("a", "left", true)})
	right.ApplyEvent(agentsvc.Event{Seq: 2, Artifact: newArtifactUpdate("a", "right", true)})
	if n := len(task.Artifacts[0].Parts); n != 1 {
		t.Errorf("the earlier snapshot has %d parts now", n)
	}
	if got := left.Artifacts[0].Parts[1].Text; got != "left" {
		t.Errorf("left reads %q", got)
	}
	if got := right.Artifacts[0].Parts[1].Text; got != "right" {
		t.Errorf("right reads %q", got)
	}
}

func TestMessageText(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][]agentsvc.Part{
		"":    nil,
		"a":   {agentsvc.TextPart("a")},
		"abc": {agentsvc.TextPart("ab"), {Data: &agentsvc.Data{Value: "x"}}, {File: &agentsvc.File{Name: "y"}}, agentsvc.TextPart("c")},
	} {
		if got := (agentsvc.Message{Parts: parts}).Text(); got != want {
			t.Errorf("text of %v is %q, want %q", parts, got, want)
		}
	}
}

func TestUsageAdd(t *testing.T) {
	t.Parallel()
	a := agentsvc.Usage{Provider: "p", Model: "old", InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheWriteTokens: 4, ReasoningTokens: 5}
	b := agentsvc.Usage{Provider: "q", Model: "new", InputTokens: 10, OutputTokens: 20, CacheReadTokens: 30, CacheWriteTokens: 40, ReasoningTokens: 50}
	want := agentsvc.Usage{Provider: "q", Model: "new", InputTokens: 11, OutputTokens: 22, CacheReadTokens: 33, CacheWriteTokens: 44, ReasoningTokens: 55}
	if diff := cmp.Diff(want, a.Add(b)); diff != "" {
		t.Error(diff)
	}
}

// TestNewID: identifiers sort by their time of creation.
func TestNewID(t *testing.T) {
	t.Parallel()
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = agentsvc.NewID()
	}
	if !slices.IsSorted(ids) || len(slices.Compact(ids)) != 1000 {
		t.Error("identifiers made in order are out of order, or twice the same")
	}
}
