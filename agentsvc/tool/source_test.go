package tool_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// fakeSource is a source that returns the values of its fields.
type fakeSource struct {
	name  string
	tools []tool.Tool
	err   error
}

func (s *fakeSource) Name() string { return s.name }
func (s *fakeSource) ListTools(context.Context, agentsvc.SessionKey) ([]tool.Tool, error) {
	return s.tools, s.err
}

func toolNames(s *tool.Set) []string {
	var names []string
	for _, spec := range s.Specs() {
		names = append(names, spec.Name)
	}
	return names
}

func TestLive(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	localTool := &fakeTool{name: "own", call: returnText("own")}
	one := &fakeSource{name: "tools.one", tools: []tool.Tool{&fakeTool{name: "a", call: returnText("a")}}}
	two := &fakeSource{name: "tools.two"}
	s := newSet(t, tool.Options{Sources: []tool.Source{one, two}, Logger: slog.New(slog.NewTextHandler(&log, nil))}, localTool)
	live := func() *tool.Set {
		t.Helper()
		now, err := s.LoadLiveSet(t.Context(), agentsvc.SessionKey{})
		if err != nil {
			t.Fatal(err)
		}
		return now
	}
	first := live()
	if diff := cmp.Diff([]string{"own", "a"}, toolNames(first)); diff != "" {
		t.Error(diff)
	}
	if live() != first {
		t.Error("nothing has changed, and it is another set")
	}
	if again, err := first.LoadLiveSet(t.Context(), agentsvc.SessionKey{}); err != nil || again != first {
		t.Errorf("a live set is not what it is: %v", err)
	}
	if got, _ := first.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: "a"}, ""); got.Text != "a" {
		t.Errorf("result %+v", got)
	}

	b := &fakeTool{name: "b", idempotent: true}
	two.tools = []tool.Tool{b, &fakeTool{name: "b"}, &fakeTool{name: "no.name"}, &fakeTool{name: "bad", parameters: `{"type":7}`}}
	if diff := cmp.Diff([]string{"own", "a", "b"}, toolNames(live())); diff != "" {
		t.Error(diff)
	}
	if !live().IsIdempotent("b") {
		t.Error("of two tools of one name it is not the first")
	}
	if diff := cmp.Diff([]string{"own", "a"}, toolNames(first)); diff != "" {
		t.Errorf("a turn under way sees another set: %s", diff)
	}
	for _, want := range []string{"tool=b reason", "tool=no.name", "tool=bad"} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log says %q not once: %s", want, &log)
		}
	}

	for _, clash := range []struct{ name, want string }{
		{"a", "a: is the name of two tools, one of tools.one and one of tools.two"},
		{"own", "own: is the name of two tools, one of the configuration and one of tools.two"},
	} {
		two.tools = []tool.Tool{&fakeTool{name: clash.name}}
		if _, err := s.LoadLiveSet(t.Context(), agentsvc.SessionKey{}); !errors.Is(err, agentsvc.CodeInvalid) || err.Error() != clash.want {
			t.Errorf("error %v, want %s", err, clash.want)
		}
	}
	two.err = &tool.UnavailableError{Source: "tools.two", Reason: "it is closed"}
	if _, err := s.LoadLiveSet(t.Context(), agentsvc.SessionKey{}); err == nil || err.Error() != "the tools of tools.two are not available: it is closed" {
		t.Errorf("error %v", err)
	}
}

func TestSourceWith(t *testing.T) {
	t.Parallel()
	yes := true
	src := tool.SourceWithSettings(&fakeSource{name: "tools.one", tools: []tool.Tool{&fakeTool{name: "a"}}}, tool.Settings{Idempotent: &yes})
	s := newSet(t, tool.Options{Sources: []tool.Source{src}})
	first, err := s.LoadLiveSet(t.Context(), agentsvc.SessionKey{})
	if err != nil || !first.IsIdempotent("a") || src.Name() != "tools.one" {
		t.Fatalf("%v, %v", first, err)
	}
	if again, _ := s.LoadLiveSet(t.Context(), agentsvc.SessionKey{}); again != first {
		t.Error("nothing has changed, and it is another set")
	}
}
