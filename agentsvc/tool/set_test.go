package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTool is a tool whose call is a function.
type fakeTool struct {
	name       string
	parameters string
	idempotent bool
	call       func(ctx context.Context, in tool.Call) (string, error)
}

func (f fakeTool) Spec() agentsvc.ToolSpec {
	return agentsvc.ToolSpec{Name: f.name, Parameters: json.RawMessage(f.parameters)}
}
func (f fakeTool) IsIdempotent() bool { return f.idempotent }
func (f fakeTool) Call(ctx context.Context, in tool.Call) (string, error) {
	return f.call(ctx, in)
}

func returnText(text string) func(context.Context, tool.Call) (string, error) {
	return func(context.Context, tool.Call) (string, error) { return text, nil }
}

func newSet(t *testing.T, opts tool.Options, tools ...tool.Tool) *tool.Set {
	t.Helper()
	s, err := tool.NewSet(tools, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRun(t *testing.T) {
	t.Parallel()
	const weather = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","maximum":7}},"required":["city"],"additionalProperties":false}`
	s := newSet(t, tool.Options{},
		fakeTool{name: "weather", parameters: weather, call: func(_ context.Context, in tool.Call) (string, error) {
			return fmt.Sprintf("%s %s", in.Step, in.Arguments), nil
		}},
		fakeTool{name: "fail", call: func(context.Context, tool.Call) (string, error) { return "half", errors.New("no such city") }},
		fakeTool{name: "bytes", call: returnText("a\x00b\xffc")},
	)
	tests := []struct {
		name, tool, args, want string
		failed                 bool
	}{
		{"fits", "weather", `{"city":"Rome"}`, `s1 {"city":"Rome"}`, false},
		{"unknown tool", "wether", `{}`, `there is no tool "wether"; the tools are weather, fail, bytes`, true},
		{"no JSON", "weather", `{"city":`, "the arguments of weather are not valid JSON: unexpected EOF", true},
		{"two values", "weather", `{} {}`, "the arguments of weather are not valid JSON: invalid character after top-level value", true},
		{"no object", "weather", `["Rome"]`, "the arguments of weather must be a JSON object", true},
		{"missing", "weather", `{}`, "the arguments of weather do not fit its schema: at /: missing property 'city'", true},
		{"wrong type", "weather", `{"city":1}`, "the arguments of weather do not fit its schema: at /city: got number, want string", true},
		{
			"several", "weather", `{"city":1,"days":9,"x":1}`,
			"the arguments of weather do not fit its schema: at /: additional properties 'x' not allowed; at /city: got number, want string; at /days: maximum: got 9, want 7", true,
		},
		{"none for none", "fail", ``, "fail: no such city", true},
		{"no text", "bytes", `{}`, "a\uFFFDb\uFFFDc", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{ID: "c1", Name: tt.tool, Arguments: json.RawMessage(tt.args)}, "s1")
			want := agentsvc.ToolResult{Call: "c1", Name: tt.tool, Text: tt.want, Failed: tt.failed}
			if tt.name == "several" { // violations may be listed in any order
				for part := range strings.SplitSeq(tt.want, "; ") {
					if !strings.Contains(got.Text, strings.TrimPrefix(part, "the arguments of weather do not fit its schema: ")) {
						t.Errorf("%q lacks %q", got.Text, part)
					}
				}
				got.Text = want.Text
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	ignoringCall := func(context.Context, tool.Call) (string, error) { time.Sleep(time.Hour); return "late", nil }
	obeyingCall := func(ctx context.Context, _ tool.Call) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	tests := []struct {
		name string
		call func(context.Context, tool.Call) (string, error)
		opts tool.Options
		want time.Duration
		logs bool
	}{
		{"a tool that obeys", obeyingCall, tool.Options{Timeout: 5 * time.Second}, 5 * time.Second, false},
		{"a tool that does not", ignoringCall, tool.Options{Timeout: 5 * time.Second}, 5 * time.Second, true},
		{"by default", obeyingCall, tool.Options{}, 30 * time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				tt.opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
				s := newSet(t, tt.opts, fakeTool{name: "slow", call: tt.call})
				start := time.Now()
				got, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: "slow"}, "s")
				if !got.Failed || !strings.Contains(got.Text, "slow did not end within "+tt.want.String()) {
					t.Errorf("result = %+v", got)
				}
				if time.Since(start) != tt.want {
					t.Errorf("took %v, want %v", time.Since(start), tt.want)
				}
				if tt.logs && !strings.Contains(log.String(), "tool=slow") {
					t.Errorf("log = %q", log.String())
				}
				time.Sleep(2 * time.Hour) // until the tool that ignores its deadline has ended
			})
		})
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newSet(t, tool.Options{}, fakeTool{name: "slow", call: func(ctx context.Context, _ tool.Call) (string, error) {
		cancel()
		<-ctx.Done()
		return "", ctx.Err()
	}})
	if got, _ := s.Call(ctx, agentsvc.RunScope{}, agentsvc.ToolCall{Name: "slow"}, "s"); !got.Failed || got.Text != "slow was cancelled before it ended" {
		t.Errorf("while it ran: %+v", got)
	}
	if got, _ := s.Call(ctx, agentsvc.RunScope{}, agentsvc.ToolCall{Name: "slow"}, "s"); !got.Failed || got.Text != "slow was not run: the call was cancelled" {
		t.Errorf("before it ran: %+v", got)
	}
	ctx, cancelLease := context.WithCancelCause(t.Context())
	lost := agentsvc.RunScope{Lease: agentsvc.LeaseCheck{Confirm: func(context.Context) { cancelLease(agentsvc.ErrLeaseLost) }}}
	if got, _ := s.Call(ctx, lost, agentsvc.ToolCall{Name: "slow"}, "s"); !got.Failed || got.Text != "slow was not run: the call was cancelled" {
		t.Errorf("with a lease that is lost: %+v", got)
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	s := newSet(t, tool.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		fakeTool{name: "bug", call: func(_ context.Context, in tool.Call) (string, error) {
			var none []string
			return none[len(in.Step)], nil
		}},
		fakeTool{name: "word", call: func(context.Context, tool.Call) (string, error) { panic("a secret") }},
	)
	for _, name := range []string{"bug", "word"} {
		got, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: name}, "s")
		if !got.Failed || !strings.HasPrefix(got.Text, name+": the tool failed with an internal error") {
			t.Errorf("result = %+v", got)
		}
	}
	for _, want := range []string{"tool=bug", "index out of range", "set_test.go", "panic=string"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), "a secret") {
		t.Error("the log shows the panic's value")
	}
}

func TestMaxOutput(t *testing.T) {
	t.Parallel()
	tests := []struct {
		max        int
		text, want string
	}{
		{0, strings.Repeat("x", 100_000), strings.Repeat("x", 100_000)},
		{5, "12345", "12345"},
		{5, "123456", "12345\n[cut here: these are the first 5 of 6 characters]"},
		{2, "aéb", "aé\n[cut here: these are the first 2 of 3 characters]"},
		{1, "é", "é"},
		{3, "世界🙂", "世界🙂"},
	}
	for _, tt := range tests {
		s := newSet(t, tool.Options{MaxOutput: tt.max}, fakeTool{name: "say", call: returnText(tt.text)})
		if got, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: "say"}, "s"); got.Text != tt.want || got.Failed {
			t.Errorf("max %d: %q, want %q", tt.max, got.Text, tt.want)
		}
	}
}

func TestSpecs(t *testing.T) {
	t.Parallel()
	s := newSet(t, tool.Options{},
		fakeTool{name: "b", parameters: `{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}`, idempotent: true}, fakeTool{name: "a"})
	want := []agentsvc.ToolSpec{
		{Name: "b", Parameters: json.RawMessage(`{"type":"object","$schema":"http://json-schema.org/draft-07/schema#"}`)},
		{Name: "a", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
	}
	if diff := cmp.Diff(want, s.Specs()); diff != "" {
		t.Errorf("specs (-want +got):\n%s", diff)
	}
	for name, want := range map[string]bool{"b": true, "a": false, "unknown": true} {
		if got := s.IsIdempotent(name); got != want {
			t.Errorf("%s: idempotent = %v, want %v", name, got, want)
		}
	}
	empty := newSet(t, tool.Options{})
	if got, _ := empty.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: "x"}, "s"); got.Text != `there is no tool "x": no tools are offered` {
		t.Errorf("empty set: %+v", got)
	}
}

func TestNewSetRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string][]tool.Tool{
		"a: is the name of two tools":        {fakeTool{name: "a"}, fakeTool{name: "a"}},
		"a.parameters: are no JSON: ":        {fakeTool{name: "a", parameters: `{`}},
		"a.parameters: are no JSON Schema o": {fakeTool{name: "a", parameters: `[]`}},
		"a.parameters: are no JSON Schema: ": {fakeTool{name: "a", parameters: `{"type":"objekt"}`}},
	}
	for want, tools := range tests {
		_, err := tool.NewSet(tools, tool.Options{})
		if !errors.Is(err, agentsvc.CodeInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error = %v, want %s...", err, want)
		}
	}
	for _, ref := range []string{"file:///etc/passwd", "http://127.0.0.1/x", "/etc/passwd", "other.json"} {
		_, err := tool.NewSet([]tool.Tool{fakeTool{name: "a", parameters: fmt.Sprintf(`{"$ref":%q}`, ref)}}, tool.Options{})
		if err == nil || !strings.Contains(err.Error(), "not loaded") {
			t.Errorf("reference to %s: %v", ref, err)
		}
	}
}
