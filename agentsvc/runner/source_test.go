package runner

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

// record moves what was numbered to the log, as the run does.
func (t *turnState) record() (log []agentsvc.Event) {
	log = t.sources.drainEvents()
	for _, ev := range log {
		t.applyEvent(ev)
	}
	return log
}

func sourceList(documents ...string) (list []agentsvc.Source) {
	for _, d := range documents {
		list = append(list, agentsvc.Source{Passage: "p", Store: "s", Document: d})
	}
	return list
}

// citedBy returns the documents and numbers that an answer cites.
func (t *turnState) citedBy(parts ...agentsvc.Part) (cited []string) {
	for _, c := range t.newCitations(agentsvc.Message{Parts: parts}) {
		m := c.(map[string]any)
		cited = append(cited, fmt.Sprintf("%v %v", m["n"], m["document"]))
	}
	return cited
}

// TestSources checks the numbers of a turn's passages, over searches and attempts, and which of them are sources: those
// that a result really quotes, or the prompt.
func TestSources(t *testing.T) {
	t.Parallel()
	var turn turnState
	number := func(inPrompt bool, documents ...string) []int {
		return turn.sources.numberSources(sourceList(documents...), inPrompt)
	}
	result := func(text string, isFailed bool) {
		turn.applyEvent(agentsvc.Event{Result: &agentsvc.ToolResult{Text: text, Failed: isFailed}})
	}
	if diff := cmp.Diff([]int{1, 2}, number(false, "a", "b")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]int{2, 3, 4}, number(false, "b", "c", "d")); diff != "" {
		t.Error(diff)
	}
	log := turn.record()
	if got := turn.citedBy(agentsvc.TextPart("[1] [2]")); got != nil {
		t.Errorf("without a result: %v", got)
	}
	result("<passages>\n{\"n\":1,\"x\"}\n{\"n\":3,\"x\"}", false)
	result("{\"n\":4,\"x\"}", true)           // a failed call
	result("text {\"n\":2,\"x\"}", false)     // not the beginning of a line
	result("{\"n\":9,\"x\"}\n{\"n\":", false) // no source, and a cut line
	for text, want := range map[string][]string{
		"no mark":            {"1 a", "3 c"},
		"as [3] says":        {"3 c"},
		"as [4] and [9] say": {"1 a", "3 c"},
		"as [1, 3, 9] say":   {"1 a", "3 c"},
	} {
		if diff := cmp.Diff(want, turn.citedBy(agentsvc.TextPart(text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
	data := agentsvc.Part{Data: &agentsvc.Data{Value: map[string]any{"list": []any{3.0}, "text": []any{"says [1]"}}}}
	if diff := cmp.Diff([]string{"1 a"}, turn.citedBy(agentsvc.TextPart(`{"list":[3],"text":["says [1]"]}`), data)); diff != "" {
		t.Error(diff)
	}
	// Another attempt: the log alone is left.
	results := slices.Clone(turn.entries)
	turn = turnState{entries: results}
	for _, ev := range log {
		turn.applyEvent(ev)
	}
	if diff := cmp.Diff([]int{5, 2}, number(true, "e", "b")); diff != "" {
		t.Error(diff)
	}
	turn.record()
	if diff := cmp.Diff([]string{"1 a", "2 b", "3 c", "5 e"}, turn.citedBy(agentsvc.TextPart(""))); diff != "" {
		t.Error(diff)
	}
	if again := number(true, "e", "b"); !cmp.Equal(again, []int{5, 2}) || len(turn.record()) != 0 {
		t.Errorf("the same passages again: %v", again)
	}
}

// TestSourceBounds checks that a turn has a bounded number of passages, and that its numbers follow those of the session.
func TestSourceBounds(t *testing.T) {
	t.Parallel()
	var turn turnState
	turn.sources.continueNumbers([]agentsvc.Entry{
		{Result: &agentsvc.ToolResult{Text: "{\"n\":7,\"x\"}\n{\"n\":12,\"x\"}\n{\"n\":99999,\"x\"}\n{\"n\":x,"}}, {Message: &agentsvc.Message{}},
	})
	var documents []string
	for i := range agentsvc.MaxSources + 2 {
		documents = append(documents, fmt.Sprint(i))
	}
	got := turn.sources.numberSources(sourceList(documents...), false)
	if got[0] != 13 || got[agentsvc.MaxSources-1] != 12+agentsvc.MaxSources || got[agentsvc.MaxSources] != 0 || got[agentsvc.MaxSources+1] != 0 {
		t.Errorf("numbers %v", got)
	}
	if again := turn.sources.numberSources(sourceList("0"), false); again[0] != 13 {
		t.Errorf("a known passage has the number %d", again[0])
	}
}
