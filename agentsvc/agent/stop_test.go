package agent_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/agent"
	"stoa/agentsvc/llm/scripted"
	"stoa/agentsvc/tool"
)

// TestStopped: the context ends when one of three calls has been told and another has ended. That one is told as well:
// it would be unknown for ever what it came to. Of the third it is.
func TestStopped(t *testing.T) {
	t.Parallel()
	says := func(context.Context, tool.Input) (string, error) { time.Sleep(time.Second); return "done", nil }
	hang := func(ctx context.Context, _ tool.Input) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	for name, build := range map[string]func(t *testing.T) agent.Agent{
		"one agent": func(t *testing.T) agent.Agent {
			set := tools(t, fn{name: "a", call: says}, fn{name: "b", call: says}, fn{name: "c", call: hang})
			return agent.NewLLM(script(t, when(scripted.When{}, calls("a", "b", "c")...)), agent.Options{Tools: set})
		},
		"side by side": func(t *testing.T) agent.Agent {
			var members []agent.Member
			for _, f := range []fn{{name: "a", call: says}, {name: "b", call: says}, {name: "c", call: hang}} {
				members = append(members, member(f.name, agent.NewLLM(script(t, when(scripted.When{}, calls(f.name)...)), agent.Options{Tools: tools(t, f)})))
			}
			return agent.NewParallel(members, agent.GroupOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var told []string
				var last error
				for ev, err := range build(t).Run(ctx, turn("go")) {
					if last = err; ev.Result == nil {
						continue
					}
					if told = append(told, ev.Result.Name+" "+ev.Result.Text); len(told) == 1 {
						synctest.Wait()
						cancel()
					}
				}
				slices.Sort(told)
				if diff := cmp.Diff([]string{"a done", "b done"}, told); diff != "" {
					t.Errorf("told -, +\n%s", diff)
				}
				if !errors.Is(last, context.Canceled) {
					t.Errorf("ended with %v", last)
				}
			})
		})
	}
}

// TestFifty: fifty calls are in their tool at the same time.
func TestFifty(t *testing.T) {
	t.Parallel()
	const width = 50
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int64
		all := make(chan struct{})
		wait := func(ctx context.Context, _ tool.Input) (string, error) {
			if inside.Add(1) == width {
				close(all)
			}
			select {
			case <-all:
				return "met", nil
			case <-ctx.Done(): // its time is over, and the others never came
				return "", ctx.Err()
			}
		}
		m := script(t, when(scripted.When{ToolResult: "wait"}, scripted.Item{Say: "Done."}), when(scripted.When{}, calls(slices.Repeat([]string{"wait"}, width)...)...))
		met := 0
		for ev, err := range agent.NewLLM(m, agent.Options{Tools: tools(t, fn{name: "wait", call: wait})}).Run(t.Context(), turn("go")) {
			if err != nil {
				t.Fatal(err)
			}
			if ev.Result != nil && ev.Result.Text == "met" {
				met++
			}
		}
		if met != width {
			t.Errorf("%d of %d calls met the others", met, width)
		}
	})
}
