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

// TestStopped ends the context when the first of three calls has been yielded and the second has ended. The second is
// yielded too, since its outcome would be unknown otherwise; the third is not.
func TestStopped(t *testing.T) {
	t.Parallel()
	says := func(context.Context, tool.Call) (string, error) { time.Sleep(time.Second); return "done", nil }
	hang := func(ctx context.Context, _ tool.Call) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	for name, build := range map[string]func(t *testing.T) agent.Agent{
		"one agent": func(t *testing.T) agent.Agent {
			set := newToolSet(t, funcTool{name: "a", call: says}, funcTool{name: "b", call: says}, funcTool{name: "c", call: hang})
			return agent.NewLLM(newScriptedModel(t, newRule(scripted.When{}, newCallItems("a", "b", "c")...)), agent.Options{Tools: set})
		},
		"side by side": func(t *testing.T) agent.Agent {
			var members []agent.Member
			for _, f := range []funcTool{{name: "a", call: says}, {name: "b", call: says}, {name: "c", call: hang}} {
				members = append(members, newMember(f.name, agent.NewLLM(newScriptedModel(t, newRule(scripted.When{}, newCallItems(f.name)...)), agent.Options{Tools: newToolSet(t, f)})))
			}
			return agent.NewParallel(members, agent.GroupOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var reported []string
				var last error
				for ev, err := range build(t).Run(ctx, newInvocation("go")) {
					if last = err; ev.Result == nil {
						continue
					}
					if reported = append(reported, ev.Result.Name+" "+ev.Result.Text); len(reported) == 1 {
						synctest.Wait()
						cancel()
					}
				}
				slices.Sort(reported)
				if diff := cmp.Diff([]string{"a done", "b done"}, reported); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
				if !errors.Is(last, context.Canceled) {
					t.Errorf("ended with %v", last)
				}
			})
		})
	}
}

// TestFifty checks that fifty calls run at the same time.
func TestFifty(t *testing.T) {
	t.Parallel()
	const width = 50
	synctest.Test(t, func(t *testing.T) {
		var inside atomic.Int64
		all := make(chan struct{})
		wait := func(ctx context.Context, _ tool.Call) (string, error) {
			if inside.Add(1) == width {
				close(all)
			}
			select {
			case <-all:
				return "met", nil
			case <-ctx.Done(): // timeout: the others did not start
				return "", ctx.Err()
			}
		}
		m := newScriptedModel(t, newRule(scripted.When{ToolResult: "wait"}, scripted.Item{Text: "Done."}), newRule(scripted.When{}, newCallItems(slices.Repeat([]string{"wait"}, width)...)...))
		met := 0
		for ev, err := range agent.NewLLM(m, agent.Options{Tools: newToolSet(t, funcTool{name: "wait", call: wait})}).Run(t.Context(), newInvocation("go")) {
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
