package scripted_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
	"stoa/agentsvc/llm/scripted"
)

// contractScript is the script that the documentation shows.
var contractScript = []scripted.Rule{
	{
		When: scripted.When{Text: `(?i)weather in (?P<city>\w+)`},
		Then: []scripted.Item{{Call: &scripted.Call{Tool: "get_weather", Arguments: map[string]any{"city": "{{city}}"}}}},
	},
	{When: scripted.When{ToolResult: "get_weather"}, Then: []scripted.Item{{Text: "It is {{result}}."}}},
	{When: scripted.When{MessageID: "^slow-"}, Then: []scripted.Item{{Text: "one ", Pause: 500 * time.Millisecond}, {Text: "two"}}},
	{When: scripted.When{Text: "^break$"}, Then: []scripted.Item{{Failure: &scripted.Failure{Status: 500, Message: "upstream said no"}}}},
	{When: scripted.When{Text: "^ask$"}, Then: []scripted.Item{{Question: "Which city?"}}},
	{When: scripted.When{Text: "^refuse$"}, Then: []scripted.Item{{Refusal: "I may not do that."}}},
	{When: scripted.When{Text: "^file$"}, Then: []scripted.Item{{Artifact: &scripted.Artifact{Name: "out.txt", MediaType: "text/plain", Text: "hello"}}}},
	{Then: []scripted.Item{{Text: "You said: {{text}}"}}},
}

// collectChunks returns the chunks of a call.
func collectChunks(t *testing.T, p *scripted.Provider, conversation ...agentsvc.Entry) ([]llm.Chunk, error) {
	t.Helper()
	var chunks []llm.Chunk
	for c, err := range p.Stream(t.Context(), llm.Request{Conversation: conversation, Step: "s"}) {
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, c)
	}
	return chunks, nil
}

func userMessage(id, text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{
		ID: agentsvc.MessageID(id), Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(text)},
	}}
}

func toolResult(name, text string) agentsvc.Entry {
	return agentsvc.Entry{Result: &agentsvc.ToolResult{Call: "c", Name: name, Text: text}}
}

func TestContract(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		conversation []agentsvc.Entry
		pieces       []string
		stop         llm.StopReason
	}{
		{"catch-all", []agentsvc.Entry{userMessage("m", "good  morning\nall")}, []string{"You ", "said: ", "good  ", "morning\n", "all"}, llm.StopEnd},
		{"call", []agentsvc.Entry{userMessage("m", "the weather in Paris?")}, nil, llm.StopTools},
		{"result", []agentsvc.Entry{userMessage("m", "weather in Paris"), toolResult("get_weather", "warm")}, []string{"It ", "is ", "warm."}, llm.StopEnd},
		{"another tool's result", []agentsvc.Entry{userMessage("m", "ask"), toolResult("get_time", "noon")}, []string{"You ", "said: ", "ask"}, llm.StopEnd},
		{
			"last of parallel results",
			[]agentsvc.Entry{userMessage("m", "x"), toolResult("get_time", "noon"), toolResult("get_weather", "warm")},
			[]string{"It ", "is ", "warm."},
			llm.StopEnd,
		},
		{"an old result", []agentsvc.Entry{toolResult("get_weather", "warm"), userMessage("m", "thanks")}, []string{"You ", "said: ", "thanks"}, llm.StopEnd},
		{"ask", []agentsvc.Entry{userMessage("m", "ask")}, []string{"Which ", "city?"}, llm.StopInputRequired},
		{"refuse", []agentsvc.Entry{userMessage("m", "refuse")}, []string{"I ", "may ", "not ", "do ", "that."}, llm.StopRefusal},
		{"file", []agentsvc.Entry{userMessage("m", "file")}, nil, llm.StopEnd},
		{"nothing said", nil, []string{"You ", "said: "}, llm.StopEnd},
	}
	p := newProvider(t, scripted.Options{Script: contractScript})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			chunks, err := collectChunks(t, p, tt.conversation...)
			if err != nil {
				t.Fatal(err)
			}
			var pieces []string
			for _, c := range chunks {
				if c.Text != "" {
					pieces = append(pieces, c.Text)
				}
			}
			if diff := cmp.Diff(tt.pieces, pieces); diff != "" {
				t.Errorf("pieces (-want +got):\n%s", diff)
			}
			if got := chunks[len(chunks)-1].Stop; got != tt.stop {
				t.Errorf("stop = %q, want %q", got, tt.stop)
			}
		})
	}
}

func TestWithoutScript(t *testing.T) {
	t.Parallel()
	chunks, err := collectChunks(t, newProvider(t, scripted.Options{}), userMessage("m", "hello"))
	if err != nil {
		t.Fatal(err)
	}
	want := []llm.Chunk{
		{Text: "You "}, {Text: "said: "}, {Text: "hello"},
		{Usage: &agentsvc.Usage{Provider: "scripted", Model: "scripted", InputTokens: 1, OutputTokens: 3}, Stop: llm.StopEnd},
	}
	if diff := cmp.Diff(want, chunks); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
}

func TestCallIDs(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Options{Script: []scripted.Rule{{Then: []scripted.Item{
		{Call: &scripted.Call{Tool: "a"}}, {Call: &scripted.Call{Tool: "a"}},
	}}}})
	ids := func(step string, conversation ...agentsvc.Entry) (out []agentsvc.CallID) {
		for c, err := range p.Stream(t.Context(), llm.Request{Step: step, Conversation: conversation}) {
			if err != nil {
				t.Fatal(err)
			}
			if c.ToolCall != nil {
				out = append(out, c.ToolCall.ID)
				if string(c.ToolCall.Arguments) != "{}" {
					t.Errorf("arguments = %s, want {}", c.ToolCall.Arguments)
				}
			}
		}
		return out
	}
	first := ids("1", userMessage("m", "x"))
	if diff := cmp.Diff(first, ids("1", userMessage("m", "x"))); diff != "" {
		t.Errorf("a repeated step has other ids:\n%s", diff)
	}
	seen := map[agentsvc.CallID]bool{}
	for _, id := range append(append(first, ids("2", userMessage("m", "x"))...), ids("1", userMessage("m", "x"), userMessage("n", "y"))...) {
		if seen[id] {
			t.Errorf("id %s is used twice", id)
		}
		seen[id] = true
	}
}

func TestArgumentsAndMessageID(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Options{Script: []scripted.Rule{{
		When: scripted.When{Text: `from (?P<from>\w+) to (?P<to>\w+)`, MessageID: `^trip-(?P<n>\d+)`},
		Then: []scripted.Item{{Call: &scripted.Call{Tool: "book_{{to}}", Arguments: map[string]any{
			"legs": []any{"{{from}}", "{{to}}"}, "meta": map[string]any{"n": "no {{n}}", "text": "{{text}}"}, "seats": 2,
		}}}},
	}}})
	chunks, err := collectChunks(t, p, userMessage("trip-7", `from A to B "now"`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"legs":["A","B"],"meta":{"n":"no 7","text":"from A to B \"now\""},"seats":2}`
	if got := chunks[0].ToolCall; string(got.Arguments) != want || got.Name != "book_B" {
		t.Errorf("%s is called with %s, want book_B with %s", got.Name, got.Arguments, want)
	}
	chunks, err = collectChunks(t, p, userMessage("other", "from A to B"))
	if err != nil || len(chunks) != 1 || chunks[0].Stop != llm.StopEnd {
		t.Errorf("no rule matches: %+v, %v; want an empty answer", chunks, err)
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Options{Script: []scripted.Rule{{Then: []scripted.Item{
		{Artifact: &scripted.Artifact{Name: "log", Text: "one {{text}}"}},
		{Artifact: &scripted.Artifact{Name: "log", Text: "two", Append: true, Last: true}},
		{Artifact: &scripted.Artifact{Name: "d", Description: "about", MediaType: "application/json", Data: map[string]any{"k": []string{"{{text}}"}, "n": 1}}},
		{Artifact: &scripted.Artifact{Name: "b", MediaType: "image/png", FileBase64: "aGk="}},
		{Artifact: &scripted.Artifact{Name: "u", MediaType: "text/html", URL: "https://example.com/{{text}}"}},
		{Artifact: &scripted.Artifact{Name: "t", MediaType: "text/csv", Text: "a,b"}},
	}}}})
	chunks, err := collectChunks(t, p, userMessage("m", "x"))
	if err != nil {
		t.Fatal(err)
	}
	var got []agentsvc.ArtifactUpdate
	for _, c := range chunks {
		if c.Artifact != nil {
			got = append(got, *c.Artifact)
		}
	}
	want := []agentsvc.ArtifactUpdate{
		{Artifact: agentsvc.Artifact{ID: "log", Name: "log", Parts: []agentsvc.Part{{Text: "one x"}}}},
		{Artifact: agentsvc.Artifact{ID: "log", Name: "log", Parts: []agentsvc.Part{{Text: "two"}}}, Append: true, Last: true},
		{Artifact: agentsvc.Artifact{ID: "d", Name: "d", Description: "about", Parts: []agentsvc.Part{{Data: &agentsvc.Data{
			MediaType: "application/json", Value: map[string]any{"k": []any{"x"}, "n": 1.0},
		}}}}, Last: true},
		{Artifact: agentsvc.Artifact{ID: "b", Name: "b", Parts: []agentsvc.Part{{File: &agentsvc.File{
			Name: "b", MediaType: "image/png", Bytes: []byte("hi"),
		}}}}, Last: true},
		{Artifact: agentsvc.Artifact{ID: "u", Name: "u", Parts: []agentsvc.Part{{File: &agentsvc.File{
			Name: "u", MediaType: "text/html", URI: "https://example.com/x",
		}}}}, Last: true},
		{Artifact: agentsvc.Artifact{
			ID: "t", Name: "t", Parts: []agentsvc.Part{{Text: "a,b"}}, Metadata: map[string]any{"media_type": "text/csv"},
		}, Last: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("artifacts (-want +got):\n%s", diff)
	}
}

func TestFail(t *testing.T) {
	t.Parallel()
	_, err := collectChunks(t, newProvider(t, scripted.Options{Script: contractScript}), userMessage("m", "break"))
	want := &llm.Error{Provider: "scripted", Status: 500, Reason: "the model's server failed", Retryable: true}
	var got *llm.Error
	if !errors.As(err, &got) {
		t.Fatalf("error = %v", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		p := newProvider(t, scripted.Options{Script: contractScript})
		for _, err := range p.Stream(t.Context(), llm.Request{Conversation: []agentsvc.Entry{userMessage("slow-1", "x")}}) {
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, time.Since(start))
		}
		if diff := cmp.Diff([]time.Duration{0, 500 * time.Millisecond, 500 * time.Millisecond}, at); diff != "" {
			t.Errorf("times (-want +got):\n%s", diff)
		}
	})
}

func TestCountedTokens(t *testing.T) {
	t.Parallel()
	p := newProvider(t, scripted.Options{Name: "demo", Model: "m1", Script: []scripted.Rule{{Then: []scripted.Item{
		{Text: "let me see"}, {Call: &scripted.Call{Tool: "get", Arguments: map[string]any{"q": "two words"}}},
	}}}})
	var got agentsvc.Usage
	req := llm.Request{System: " be  brief ", Conversation: []agentsvc.Entry{userMessage("m", "one two"), toolResult("get", "three")}}
	for c, err := range p.Stream(t.Context(), req) {
		if err != nil {
			t.Fatal(err)
		}
		if c.Usage != nil {
			got = *c.Usage
		}
	}
	want := agentsvc.Usage{Provider: "demo", Model: "m1", InputTokens: 5, OutputTokens: 3 + 1 + 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	answer := []scripted.Item{{Text: "x"}}
	tests := []struct {
		name string
		rule scripted.Rule
		want string
	}{
		{"text", scripted.Rule{When: scripted.When{Text: "("}, Then: answer}, "script[0].when.text: is no RE2 expression"},
		{"look-ahead", scripted.Rule{When: scripted.When{Text: "(?=x)"}, Then: answer}, "script[0].when.text: is no RE2 expression"},
		{"message id", scripted.Rule{When: scripted.When{MessageID: "["}, Then: answer}, "script[0].when.message_id: "},
		{"empty then", scripted.Rule{}, "script[0].then: is empty"},
		{"empty item", scripted.Rule{Then: []scripted.Item{{}}}, "script[0].then[0]: needs exactly one of"},
		{"two effects", scripted.Rule{Then: []scripted.Item{{Text: "x", Question: "y"}}}, "script[0].then[0]: needs exactly one of"},
		{"negative pause", scripted.Rule{Then: []scripted.Item{{Pause: -1}}}, "script[0].then[0].pause: is negative"},
		{"long pause", scripted.Rule{Then: []scripted.Item{{Pause: 240 * time.Hour}}}, "script[0].then[0].pause: is 240h0m0s; at most 10m0s"},
		{"unknown placeholder", scripted.Rule{Then: []scripted.Item{{Text: "{{city}}"}}}, "script[0].then[0]: {{city}} is not a placeholder; this rule has {{text}}, {{result}}"},
		{"unknown placeholder in arguments", scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "a", Arguments: map[string]any{"a": "{{b}}"}}}}}, "script[0].then[0].call.arguments: {{b}}"},
		{"unknown placeholder in a tool", scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "a_{{b}}"}}}}, "script[0].then[0].call.tool: {{b}} is not a placeholder"},
		{"call without tool", scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{}}}}, "script[0].then[0].call.tool: is missing"},
		{"arguments", scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "a", Arguments: map[string]any{"f": func() {}}}}}}, "script[0].then[0].call.arguments: cannot be written as JSON"},
		{"status", scripted.Rule{Then: []scripted.Item{{Failure: &scripted.Failure{Status: 200}}}}, "script[0].then[0].fail.status: is 200"},
		{"usage", scripted.Rule{Then: []scripted.Item{{Usage: &scripted.Usage{InputTokens: -1}}}}, "script[0].then[0].usage: has counts that are not 0 to 1000000000000"},
		{"usage of the rule", scripted.Rule{Then: answer, Usage: &scripted.Usage{OutputTokens: -1}}, "script[0].usage: has counts that are not 0 to 1000000000000"},
		{"usage beyond count", scripted.Rule{Then: answer, Usage: &scripted.Usage{OutputTokens: math.MaxInt64}}, "script[0].usage: has counts that are not 0 to 1000000000000"},
		{"after the end", scripted.Rule{Then: []scripted.Item{{Question: "x"}, {Text: "y"}}}, "script[0].then[1]: comes after the answer's end"},
		{"a call in a message", scripted.Rule{Standalone: true, Then: []scripted.Item{{Text: "x"}, {Call: &scripted.Call{Tool: "a"}}}}, "script[0].then[1]: is the work of a task"},
		{"a question in a message", scripted.Rule{Standalone: true, Then: []scripted.Item{{Question: "x"}}}, "script[0].then[0]: is the work of a task"},
		{"call and ask", scripted.Rule{Then: []scripted.Item{{Call: &scripted.Call{Tool: "a"}}, {Question: "y"}}}, "script[0].then[1]: cannot go with a call"},
		{"artifact name", scripted.Rule{Then: []scripted.Item{{Artifact: &scripted.Artifact{Text: "x"}}}}, "script[0].then[0].artifact.name: is missing"},
		{"artifact source", scripted.Rule{Then: []scripted.Item{{Artifact: &scripted.Artifact{Name: "a"}}}}, "script[0].then[0].artifact: needs exactly one of"},
		{"two sources", scripted.Rule{Then: []scripted.Item{{Artifact: &scripted.Artifact{Name: "a", Text: "x", URL: "y"}}}}, "script[0].then[0].artifact: needs exactly one of"},
		{"base64", scripted.Rule{Then: []scripted.Item{{Artifact: &scripted.Artifact{Name: "a", FileBase64: "?"}}}}, "script[0].then[0].artifact.file_base64: is no base64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := scripted.New(scripted.Options{Script: []scripted.Rule{tt.rule}})
			if !errors.Is(err, agentsvc.CodeInvalid) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s...", err, tt.want)
			}
		})
	}
	_, err := scripted.New(scripted.Options{Script: []scripted.Rule{{}, {When: scripted.When{Text: "("}, Then: answer}}})
	if err == nil || !strings.Contains(err.Error(), "script[0].then") || !strings.Contains(err.Error(), "script[1].when.text") {
		t.Errorf("error = %v, want both mistakes", err)
	}
}
