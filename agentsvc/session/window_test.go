package session_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/processor"
	"stoa/agentsvc/session"
)

// windowFunc is the function that a strategy returns for a turn.
type windowFunc = func(context.Context, []agentsvc.Entry) ([]agentsvc.Entry, []agentsvc.Usage, error)

// parseEntries parses a conversation from lines: "u:text" is a user's message, "a:text" an agent's, "c:id,id" an
// agent's message with tool calls, "r:id" a result. A number before it is the turn of the session: "3 u:text".
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

// formatEntries is the inverse of parseEntries, without turns.
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

// countBytes counts one token for each byte.
func countBytes(_ *pattern.StepBudget, text string) int { return len(text) }

func TestWindows(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100)
	for _, c := range []struct {
		name string
		fit  windowFunc
		in   string
		want string
	}{
		{"all fits", session.MessageWindow{MaxEntries: 3}.Open(llm.Request{}), "u:1 a:2 u:3", "u:1 a:2 u:3"},
		{"the last messages", session.MessageWindow{MaxEntries: 3}.Open(llm.Request{}), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"an answer keeps its question", session.MessageWindow{MaxEntries: 2}.Open(llm.Request{}), "u:1 a:2 u:3", "u:3"},
		{"calls go with their results", session.MessageWindow{MaxEntries: 4}.Open(llm.Request{}), "u:1 c:x,y r:x r:y a:2 u:3", "u:1 a:2 u:3"},
		{"calls that fit", session.MessageWindow{MaxEntries: 6}.Open(llm.Request{}), "u:0 u:1 c:x,y r:x r:y a:2 u:3", "u:1 c:x,y r:x r:y a:2 u:3"},
		{"a turn of many calls keeps what it answers", session.MessageWindow{MaxEntries: 3}.Open(llm.Request{}), "u:1 c:x r:x c:y r:y", "u:1 c:y r:y"},
		{"the last calls stay at any cost", session.MessageWindow{MaxEntries: 2}.Open(llm.Request{}), "u:1 c:x,y,z r:x r:y r:z", "u:1 c:x,y,z r:x r:y r:z"},
		{"a late result brings everything from its call on", session.MessageWindow{MaxEntries: 3}.Open(llm.Request{}), "u:1 c:x,y r:x a:2 r:y", "u:1 c:x,y r:x a:2 r:y"},
		{"nothing", session.MessageWindow{MaxEntries: 3}.Open(llm.Request{}), "", ""},
		{"tokens", session.TokenWindow{Budget: 15, CountTokens: countBytes}.Open(llm.Request{}), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"the recent stay over the budget", session.TokenWindow{Budget: 5, MinEntries: 3, CountTokens: countBytes}.Open(llm.Request{}), "u:1 a:2 u:3 a:4 u:5", "u:3 a:4 u:5"},
		{"what is recent is not split", session.TokenWindow{Budget: 1, MinEntries: 2, CountTokens: countBytes}.Open(llm.Request{}), "u:1 c:x r:x a:4", "u:1 a:4"},
		{"a message that is too long alone", session.TokenWindow{Budget: 5, CountTokens: countBytes}.Open(llm.Request{}), "u:1 a:2 u:" + long, "u:" + long},
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

// drawConversation draws a session of whole turns: a user's message, then calls with their results in any order, and an
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

// checkWindow fails the test if the result for a conversation breaks a rule that holds for all strategies.
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
		visible, _, _ := session.MessageWindow{MaxEntries: size}.Open(llm.Request{})(t.Context(), all)
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
		visible, _, _ = session.TokenWindow{Budget: size * 10, MinEntries: recent, CountTokens: countBytes}.Open(llm.Request{})(t.Context(), all)
		checkWindow(t, all, visible)
	})
}

func TestCounters(t *testing.T) {
	t.Parallel()
	exact := session.NewTokenCounter("openai", "gpt-4o")
	for text, want := range map[string]int{"": 0, "hello world": 2, "The quick brown fox jumps over the lazy dog.": 10} {
		if got := exact(newWork(t), text); got != want {
			t.Errorf("gpt-4o counts %d tokens in %q, want %d", got, text, want)
		}
	}
	if got := session.NewTokenCounter("openai", "a-model-of-tomorrow")(newWork(t), "hello world"); got != 2 {
		t.Errorf("an unknown model of openai counts %d", got)
	}
	for text, want := range map[string]int{"": 0, "hello world": 3, "日本語": 3} {
		if got := session.NewTokenCounter("anthropic", "claude")(newWork(t), text); got != want {
			t.Errorf("the estimate of %q is %d, want %d", text, got, want)
		}
	}
}

func newWork(t *testing.T) *pattern.StepBudget { return pattern.NewStepBudget(t.Context(), "", 0) }

// TestCountInPieces checks that the sum of the pieces of a long text is near the number of its tokens, that a bound
// holds for the texts of one work together, and that what exceeds it is estimated.
func TestCountInPieces(t *testing.T) {
	t.Parallel()
	count := session.NewTokenCounter("openai", "gpt-4o")
	sentence := "The quick brown fox jumps over the lazy dog, größer als 12 alte 日本語.\n"
	few, many := count(newWork(t), strings.Repeat(sentence, 10)), count(newWork(t), strings.Repeat(sentence, 1000))
	if diff := many - 100*few; diff > 10 || diff < -10 {
		t.Errorf("%d tokens in 1000 sentences, %d in 10 of them", many, few)
	}
	if got, want := count(newWork(t), strings.Repeat("日", 10_000)), 10_000; got < want/2 || got > 2*want {
		t.Errorf("%d tokens in %d characters", got, want)
	}
	work, text := newWork(t), strings.Repeat("qzj ", 100<<10/4)
	exact, estimate := count(work, text), session.EstimateTokens(text)
	sum := exact
	for range 19 {
		sum += count(work, text)
	}
	if counted := (sum - 20*estimate) / (exact - estimate); counted < 9 || counted > 10 {
		t.Errorf("of 20 texts of 100 KiB %d are counted exactly, want those within a MiB", counted)
	}
}

// TestCountEndsWithContext checks that counting a long conversation looks at the context for every 4 KiB, and ends with it.
func TestCountEndsWithContext(t *testing.T) {
	t.Parallel()
	window := session.TokenWindow{Budget: 1 << 20, CountTokens: session.NewTokenCounter("openai", "gpt-4o")}
	conversation := []agentsvc.Entry{newTextEntry(strings.Repeat("a word ", 256<<10/7))}
	ctx := &endingContext{Context: t.Context(), endsAfter: 1 << 30}
	if _, _, err := window.Open(llm.Request{})(ctx, conversation); err != nil || ctx.looks < 64 {
		t.Errorf("%v after %d looks, want 64 looks", err, ctx.looks)
	}
	ctx = &endingContext{Context: t.Context(), endsAfter: 10}
	if _, _, err := window.Open(llm.Request{})(ctx, conversation); !errors.Is(err, context.Canceled) || ctx.looks > 12 {
		t.Errorf("%v after %d looks, want %v after 10", err, ctx.looks, context.Canceled)
	}
}

// TestCountWaitsForProcessor checks that a long text is counted in turns of the processor, and a short one without. It
// is not parallel, because the turns are shared by all tests.
func TestCountWaitsForProcessor(t *testing.T) {
	count := session.NewTokenCounter("openai", "gpt-4o")
	count(newWork(t), "the vocabulary is loaded")
	synctest.Test(t, func(t *testing.T) {
		turns := max(1, runtime.GOMAXPROCS(0)/2)
		for range turns {
			if err := processor.Shared.Acquire(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan int, 1)
		go func() { done <- count(newWork(t), strings.Repeat("a word ", 10_000)) }()
		synctest.Wait()
		if len(done) != 0 {
			t.Error("a long text is counted without a turn")
		}
		if got := count(newWork(t), "hello world"); got != 2 {
			t.Errorf("%d tokens in a short text", got)
		}
		for range turns {
			processor.Shared.Release()
		}
		<-done
	})
}

func newTextEntry(text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)}}}
}

// endingContext is a context that has ended after some looks at it.
type endingContext struct {
	context.Context
	endsAfter, looks int
}

func (c *endingContext) Err() error {
	if c.looks++; c.looks >= c.endsAfter {
		return context.Canceled
	}
	return nil
}

// TestEncodings checks which models have the older encoding: it has two tokens for this text, the newer one has one.
func TestEncodings(t *testing.T) {
	t.Parallel()
	const text = " Благодарю"
	older := session.NewTokenCounter("openai", "gpt-4")(newWork(t), text)
	newer := session.NewTokenCounter("openai", "gpt-4o")(newWork(t), text)
	if older <= newer {
		t.Fatalf("gpt-4 counts %d tokens and gpt-4o %d: the text does not distinguish them", older, newer)
	}
	for model, want := range map[string]int{
		"gpt-4-turbo": older, "gpt-3.5-turbo-0125": older, "text-embedding-3-small": older, "ft:gpt-4-0613:acme": older,
		"gpt-4o-mini": newer, "gpt-4.1": newer, "gpt-4.1-nano": newer, "gpt-5-mini": newer, "o3": newer, "ft:gpt-4o-2024:acme": newer, "": newer,
	} {
		if got := session.NewTokenCounter("openai", model)(newWork(t), text); got != want {
			t.Errorf("%s counts %d tokens, want %d", model, got, want)
		}
	}
}
