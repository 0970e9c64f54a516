package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/agentsvc/session"
)

// fit is what a strategy is in a turn.
type fit = func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error)

// talk makes a conversation of lines: "u:text" of the user, "a:text" of the agent, "c:id,id" an agent's message that
// calls tools, "r:id" a result. A number before it is the turn of the session: "3 u:text".
func talk(lines ...string) (entries []agentsvc.Entry) {
	for _, line := range lines {
		var e agentsvc.Entry
		if turn, rest, ok := strings.Cut(line, " "); ok && turn != "" && turn[0] >= '0' && turn[0] <= '9' {
			fmt.Sscan(turn, &e.Turn)
			line = rest
		}
		kind, text, _ := strings.Cut(line, ":")
		switch kind {
		case "r":
			e.Result = &agentsvc.ToolResult{Call: agentsvc.CallID(text), Name: "t", Text: text}
		case "c":
			e.Message = &agentsvc.Message{Role: agentsvc.RoleAgent}
			for _, id := range strings.Split(text, ",") {
				e.Message.ToolCalls = append(e.Message.ToolCalls, agentsvc.ToolCall{ID: agentsvc.CallID(id), Name: "t"})
			}
		default:
			e.Message = &agentsvc.Message{Role: map[string]agentsvc.Role{"u": agentsvc.RoleUser, "a": agentsvc.RoleAgent}[kind], Parts: []agentsvc.Part{agentsvc.TextPart(text)}}
		}
		entries = append(entries, e)
	}
	return entries
}

// lines is the reverse of talk, without turns.
func lines(entries []agentsvc.Entry) (out []string) {
	for _, e := range entries {
		switch {
		case e.Result != nil:
			out = append(out, "r:"+string(e.Result.Call))
		case len(e.Message.ToolCalls) > 0:
			var ids []string
			for _, c := range e.Message.ToolCalls {
				ids = append(ids, string(c.ID))
			}
			out = append(out, "c:"+strings.Join(ids, ","))
		case e.Message.Role == agentsvc.RoleUser:
			out = append(out, "u:"+e.Message.Text())
		default:
			out = append(out, "a:"+e.Message.Text())
		}
	}
	return out
}

// bytes counts a token for each byte.
func bytes(text string) int { return len(text) }

func TestWindows(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name string
		fit  fit
		in   string
		want string
	}{
		{"all fits", session.Buffer{Size: 3}.Open(), "u:1 a:2 u:3", "u:1 a:2 u:3"},
		{"the last messages", session.Buffer{Size: 3}.Open(), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"an answer keeps its question", session.Buffer{Size: 2}.Open(), "u:1 a:2 u:3", "u:3"},
		{"calls go with their results", session.Buffer{Size: 4}.Open(), "u:1 c:x,y r:x r:y a:2 u:3", "u:1 a:2 u:3"},
		{"calls that fit", session.Buffer{Size: 6}.Open(), "u:0 u:1 c:x,y r:x r:y a:2 u:3", "u:1 c:x,y r:x r:y a:2 u:3"},
		{"a turn of many calls keeps what it answers", session.Buffer{Size: 3}.Open(), "u:1 c:x r:x c:y r:y", "u:1 c:y r:y"},
		{"the last calls stay at any cost", session.Buffer{Size: 2}.Open(), "u:1 c:x,y,z r:x r:y r:z", "u:1 c:x,y,z r:x r:y r:z"},
		{"a late result brings everything from its call on", session.Buffer{Size: 3}.Open(), "u:1 c:x,y r:x a:2 r:y", "u:1 c:x,y r:x a:2 r:y"},
		{"nothing", session.Buffer{Size: 3}.Open(), "", ""},
		{"tokens", session.Tokens{Budget: 15, Count: bytes}.Open(), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"the recent stay over the budget", session.Tokens{Budget: 5, Recent: 3, Count: bytes}.Open(), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"what is recent is not split", session.Tokens{Budget: 1, Recent: 2, Count: bytes}.Open(), "u:1 c:x r:x a:4", "u:1 a:4"},
		{"a message that is too long alone", session.Tokens{Budget: 5, Count: bytes}.Open(), "u:1 a:2 u:" + long, "u:" + long},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			shown, used, err := c.fit(t.Context(), talk(strings.Fields(c.in)...))
			if err != nil || used != nil {
				t.Fatal(used, err)
			}
			if diff := cmp.Diff(c.want, strings.Join(lines(shown), " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// conversations draws sessions of whole turns: a user's message, then calls with their results in any order, an
// answer.
func conversations(t *rapid.T) (out []agentsvc.Entry) {
	calls := 0
	turns := rapid.IntRange(1, 8).Draw(t, "turns")
	for n := range turns {
		turn := []string{"u:" + rapid.StringN(1, 30, -1).Draw(t, "question")}
		for range rapid.IntRange(0, 4).Draw(t, "rounds") {
			var ids []string
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				calls++
				ids = append(ids, fmt.Sprint("call", calls))
			}
			turn = append(turn, "c:"+strings.Join(ids, ","))
			for _, id := range rapid.Permutation(ids).Draw(t, "results") {
				turn = append(turn, "r:"+id)
			}
		}
		if n < turns-1 {
			turn = append(turn, "a:answer")
		}
		entries := talk(turn...)
		for i := range entries {
			entries[i].Turn = int64(n + 1)
			if n == turns-1 {
				entries[i].Turn = 0
			}
		}
		out = append(out, entries...)
	}
	return out
}

// whole fails the test if what is shown of a conversation breaks what holds for every strategy.
func whole(t *rapid.T, all, shown []agentsvc.Entry) {
	var open []agentsvc.CallID
	for i, e := range shown {
		if e.Result == nil {
			if len(open) > 0 {
				t.Fatalf("entry %d comes before the results of %v: %v", i, open, lines(shown))
			}
			for _, c := range e.Message.ToolCalls {
				open = append(open, c.ID)
			}
			continue
		}
		at := slices.Index(open, e.Result.Call)
		if at < 0 {
			t.Fatalf("the result of %s has no call: %v", e.Result.Call, lines(shown))
		}
		open = slices.Delete(open, at, at+1)
	}
	if len(open) > 0 {
		t.Fatalf("the calls %v have no results: %v", open, lines(shown))
	}
	if len(shown) == 0 || shown[0].Message == nil || shown[0].Message.Role != agentsvc.RoleUser {
		t.Fatalf("the window does not begin with the user: %v", lines(shown))
	}
	asked := -1
	for i, e := range all {
		if e.Message != nil && e.Message.Role == agentsvc.RoleUser {
			asked = i
		}
	}
	if !slices.ContainsFunc(shown, func(e agentsvc.Entry) bool { return e.Message == all[asked].Message && e.Message != nil }) {
		t.Fatalf("the question %v is gone: %v", lines(all[asked:asked+1]), lines(shown))
	}
	before := -1
	for _, e := range shown {
		i := slices.IndexFunc(all, func(x agentsvc.Entry) bool { return x == e })
		if i < 0 {
			continue // a summary
		}
		if i <= before {
			t.Fatalf("the order changed: %v", lines(shown))
		}
		before = i
	}
}

func TestWindowsNeverSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := conversations(t)
		size, recent := rapid.IntRange(1, 40).Draw(t, "size"), rapid.IntRange(0, 8).Draw(t, "recent")
		shown, _, _ := session.Buffer{Size: size}.Open()(t.Context(), all)
		whole(t, all, shown)
		longest := 0 // the last message with its results, and the question
		for i := len(all) - 1; i >= 0; i-- {
			if longest++; all[i].Message != nil {
				break
			}
		}
		if len(shown) > max(size, longest+1) {
			t.Fatalf("%d messages are shown, want at most %d: %v", len(shown), size, lines(shown))
		}
		shown, _, _ = session.Tokens{Budget: size * 10, Recent: recent, Count: bytes}.Open()(t.Context(), all)
		whole(t, all, shown)
	})
}

func TestCounters(t *testing.T) {
	t.Parallel()
	exact := session.CounterFor("openai", "gpt-4o")
	for text, want := range map[string]int{"": 0, "hello world": 2, "The quick brown fox jumps over the lazy dog.": 10} {
		if got := exact(text); got != want {
			t.Errorf("gpt-4o counts %d tokens in %q, want %d", got, text, want)
		}
	}
	if got := session.CounterFor("openai", "a-model-of-tomorrow")("hello world"); got != 2 {
		t.Errorf("an unknown model of openai counts %d", got)
	}
	for text, want := range map[string]int{"": 0, "hello world": 3, "日本語": 3} {
		if got := session.CounterFor("anthropic", "claude")(text); got != want {
			t.Errorf("the estimate of %q is %d, want %d", text, got, want)
		}
	}
}
