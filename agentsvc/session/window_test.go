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

// windowFunc is what a strategy is in a turn.
type windowFunc = func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error)

// parseEntries makes a conversation of lines: "u:text" of the user, "a:text" of the agent, "c:id,id" an agent's message that
// calls tools, "r:id" a result. A number before it is the turn of the session: "3 u:text".
func parseEntries(lines ...string) (entries []agentsvc.Entry) {
	for _, line := range lines {
		var e agentsvc.Entry
		if turn, remainder, ok := strings.Cut(line, " "); ok && turn != "" && turn[0] >= '0' && turn[0] <= '9' {
			fmt.Sscan(turn, &e.Turn)
			line = remainder
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

// formatEntries is the reverse of talk, without turns.
func formatEntries(entries []agentsvc.Entry) (out []string) {
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

// countBytes counts a token for each byte.
func countBytes(text string) int { return len(text) }

func TestWindows(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name string
		fit  windowFunc
		in   string
		want string
	}{
		{"all fits", session.MessageWindow{MaxEntries: 3}.Open(), "u:1 a:2 u:3", "u:1 a:2 u:3"},
		{"the last messages", session.MessageWindow{MaxEntries: 3}.Open(), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"an answer keeps its question", session.MessageWindow{MaxEntries: 2}.Open(), "u:1 a:2 u:3", "u:3"},
		{"calls go with their results", session.MessageWindow{MaxEntries: 4}.Open(), "u:1 c:x,y r:x r:y a:2 u:3", "u:1 a:2 u:3"},
		{"calls that fit", session.MessageWindow{MaxEntries: 6}.Open(), "u:0 u:1 c:x,y r:x r:y a:2 u:3", "u:1 c:x,y r:x r:y a:2 u:3"},
		{"a turn of many calls keeps what it answers", session.MessageWindow{MaxEntries: 3}.Open(), "u:1 c:x r:x c:y r:y", "u:1 c:y r:y"},
		{"the last calls stay at any cost", session.MessageWindow{MaxEntries: 2}.Open(), "u:1 c:x,y,z r:x r:y r:z", "u:1 c:x,y,z r:x r:y r:z"},
		{"a late result brings everything from its call on", session.MessageWindow{MaxEntries: 3}.Open(), "u:1 c:x,y r:x a:2 r:y", "u:1 c:x,y r:x a:2 r:y"},
		{"nothing", session.MessageWindow{MaxEntries: 3}.Open(), "", ""},
		{"tokens", session.TokenWindow{Budget: 15, CountTokens: countBytes}.Open(), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"the recent stay over the budget", session.TokenWindow{Budget: 5, MinEntries: 3, CountTokens: countBytes}.Open(), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"what is recent is not split", session.TokenWindow{Budget: 1, MinEntries: 2, CountTokens: countBytes}.Open(), "u:1 c:x r:x a:4", "u:1 a:4"},
		{"a message that is too long alone", session.TokenWindow{Budget: 5, CountTokens: countBytes}.Open(), "u:1 a:2 u:" + long, "u:" + long},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			visible, usage, err := c.fit(t.Context(), parseEntries(strings.Fields(c.in)...))
			if err != nil || usage != nil {
				t.Fatal(usage, err)
			}
			if diff := cmp.Diff(c.want, strings.Join(formatEntries(visible), " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// drawConversation draws sessions of whole turns: a user's message, then calls with their results in any order, an
// answer.
func drawConversation(t *rapid.T) (out []agentsvc.Entry) {
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
		entries := parseEntries(turn...)
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

// checkWindow fails the test if what is shown of a conversation breaks what holds for every strategy.
func checkWindow(t *rapid.T, all, visible []agentsvc.Entry) {
	var open []agentsvc.CallID
	for i, e := range visible {
		if e.Result == nil {
			if len(open) > 0 {
				t.Fatalf("entry %d comes before the results of %v: %v", i, open, formatEntries(visible))
			}
			for _, c := range e.Message.ToolCalls {
				open = append(open, c.ID)
			}
			continue
		}
		at := slices.Index(open, e.Result.Call)
		if at < 0 {
			t.Fatalf("the result of %s has no call: %v", e.Result.Call, formatEntries(visible))
		}
		open = slices.Delete(open, at, at+1)
	}
	if len(open) > 0 {
		t.Fatalf("the calls %v have no results: %v", open, formatEntries(visible))
	}
	if len(visible) == 0 || visible[0].Message == nil || visible[0].Message.Role != agentsvc.RoleUser {
		t.Fatalf("the window does not begin with the user: %v", formatEntries(visible))
	}
	requested := -1
	for i, e := range all {
		if e.Message != nil && e.Message.Role == agentsvc.RoleUser {
			requested = i
		}
	}
	if !slices.ContainsFunc(visible, func(e agentsvc.Entry) bool { return e.Message == all[requested].Message && e.Message != nil }) {
		t.Fatalf("the question %v is gone: %v", formatEntries(all[requested:requested+1]), formatEntries(visible))
	}
	before := -1
	for _, e := range visible {
		i := slices.IndexFunc(all, func(x agentsvc.Entry) bool { return x == e })
		if i < 0 {
			continue // a summary
		}
		if i <= before {
			t.Fatalf("the order changed: %v", formatEntries(visible))
		}
		before = i
	}
}

func TestWindowsNeverSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := drawConversation(t)
		size, recent := rapid.IntRange(1, 40).Draw(t, "size"), rapid.IntRange(0, 8).Draw(t, "recent")
		visible, _, _ := session.MessageWindow{MaxEntries: size}.Open()(t.Context(), all)
		checkWindow(t, all, visible)
		longest := 0 // the last message with its results, and the question
		for i := len(all) - 1; i >= 0; i-- {
			if longest++; all[i].Message != nil {
				break
			}
		}
		if len(visible) > max(size, longest+1) {
			t.Fatalf("%d messages are shown, want at most %d: %v", len(visible), size, formatEntries(visible))
		}
		visible, _, _ = session.TokenWindow{Budget: size * 10, MinEntries: recent, CountTokens: countBytes}.Open()(t.Context(), all)
		checkWindow(t, all, visible)
	})
}

func TestCounters(t *testing.T) {
	t.Parallel()
	exact := session.NewTokenCounter("openai", "gpt-4o")
	for text, want := range map[string]int{"": 0, "hello world": 2, "The quick brown fox jumps over the lazy dog.": 10} {
		if got := exact(text); got != want {
			t.Errorf("gpt-4o counts %d tokens in %q, want %d", got, text, want)
		}
	}
	if got := session.NewTokenCounter("openai", "a-model-of-tomorrow")("hello world"); got != 2 {
		t.Errorf("an unknown model of openai counts %d", got)
	}
	for text, want := range map[string]int{"": 0, "hello world": 3, "日本語": 3} {
		if got := session.NewTokenCounter("anthropic", "claude")(text); got != want {
			t.Errorf("the estimate of %q is %d, want %d", text, got, want)
		}
	}
}
