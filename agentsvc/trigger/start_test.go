package trigger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestStarts: the last starts of an agent, the newest first, and none of another agent or app; older ones are deleted,
// also where many agents have some.
func TestStarts(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		record := func(app db.ID, agent string, s Start) {
			t.Helper()
			if err := RecordStart(t.Context(), d, app, agent, s); err != nil {
				t.Fatal(err)
			}
		}
		list := func(app db.ID, agent string) []Start {
			t.Helper()
			starts, err := ListStarts(t.Context(), d, app, agent)
			if err != nil {
				t.Fatal(err)
			}
			return starts
		}
		count := func(app db.ID) (n int) {
			t.Helper()
			var b db.Batch
			b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM trigger_start WHERE tenant = $1`, string(app))
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			return n
		}
		record("acme", "a", Start{Kind: TickStart, Outcome: "refused", Error: strings.Repeat("ä", maxStartError)})
		record("acme", "a", Start{Kind: DeliveryStart, Outcome: "started", Task: "t1"})
		record("acme", "b", Start{Kind: ManualStart, Outcome: "started", Task: "t2"})
		record("globex", "a", Start{Kind: TickStart, Outcome: "started", Task: "t3"})
		want := []Start{{Kind: DeliveryStart, Outcome: "started", Task: "t1"}, {Kind: TickStart, Outcome: "refused", Error: strings.Repeat("ä", maxStartError/2)}}
		got := list("acme", "a")
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Start{}, "At")); diff != "" || got[0].At.Before(got[1].At) {
			t.Errorf("%v\n%s", got, diff)
		}
		for i := range MaxStarts + 5 {
			record("acme", "a", Start{Kind: TickStart, Outcome: "started", Task: agentsvc.TaskID(fmt.Sprint(i))})
		}
		if got := list("acme", "a"); len(got) != MaxStarts || got[0].Task != agentsvc.TaskID(fmt.Sprint(MaxStarts+4)) || count("acme") != MaxStarts+1 || len(list("acme", "b")) != 1 {
			t.Errorf("%d starts are listed, %d stored, the newest %+v", len(got), count("acme"), got[0])
		}
		var b db.Batch
		b.Exec(nil, `INSERT INTO trigger_start (tenant, agent, id, at, kind, outcome, task, error)
			WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) SELECT 'acme', 'agent-' || i, 'a' || (10000 + i), 0, 'tick', 'started', '', '' FROM n`)
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		record("acme", "b", Start{Kind: ManualStart, Outcome: "started"})
		if n := count("acme"); n != maxStartsPerApp {
			t.Errorf("the app has %d starts", n)
		}
		if len(list("globex", "a")) != 1 {
			t.Error("another app has lost its start")
		}
	})
}
