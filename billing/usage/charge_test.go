package usage_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/billing/usage"
	"stoa/billing/usage/usagetest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestLoadCharges checks that the charges of a task's model calls are found by their ids, and those of no other app or
// task.
func TestLoadCharges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, app, ctx := usagetest.OpenPriced(t, d), usagetest.NewApp(), t.Context()
		write := func(task agentsvc.TaskID, call string) {
			agentsvctest.RequireNoErrors(t, s.Usage.NewMeter(app.ID, "").WriteUsage(ctx, usage.RunFacts{
				Task: task, Turn: 1, Epoch: 1, Agent: "a", Events: []agentsvc.Event{{Usage: &agentsvc.Usage{Call: call, StartedAt: usagetest.DateIn2026(1, 5), Provider: "p", Model: "m", InputTokens: 1}}},
			}))
		}
		write("t1", "c1")
		write("t1", "c2")
		write("t2", "c3")
		got, err := s.Usage.LoadCharges(ctx, app.ID, "t1", []string{"c1", "c3", "nosuch"})
		agentsvctest.RequireNoErrors(t, err)
		want := map[string]usage.Charge{"c1": {Currency: "USD", Amount: 10}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if got, err := s.Usage.LoadCharges(ctx, "another", "t1", []string{"c1"}); err != nil || len(got) > 0 {
			t.Errorf("of another app: %v (%v)", got, err)
		}
	})
}
