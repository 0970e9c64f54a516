package tenancy_test

import (
	"context"
	"strings"
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestRedactEarlierEntries checks that values which an earlier version wrote in clear are replaced by hashes, for an
// existing app and a deleted one; that the chains are intact afterwards and record it; and that an inspector which
// knows them as they were finds no flaw. A chain that was tampered with before stays as it is.
func TestRedactEarlierEntries(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		ids := map[string]db.ID{}
		for _, name := range []string{"acme", "gone", "bad"} {
			app, err := s.CreateApp(t.Context(), tenancytest.Actor, tenancy.Draft{Name: name, Config: []byte(`{}`)}, false)
			if err != nil {
				t.Fatal(err)
			}
			ids[name] = app.ID
			for action, detail := range map[string]map[string]any{
				"app.update":       {"before": map[string]any{"revision": 1, "config": map[string]any{"prompt": "canary"}}, "after": map[string]any{"revision": 2, "display_name": "canary"}},
				"approval.approve": {"task": "t", "arguments": "canary"},
				"notification.set": {"task": "t", "config": "canary"},
				"price.create":     {"after": map[string]any{"version": "stays"}},
			} {
				if err := s.Trail.Record(t.Context(), audit.Entry{Actor: tenancytest.Actor, Action: action, App: name, AppID: app.ID, Detail: detail}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.DeleteApp(t.Context(), tenancytest.Actor, "gone"); err != nil {
			t.Fatal(err)
		}
		if err := s.Trail.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		inspector := audit.NewInspector(s.Trail, nil)
		if found, err := inspector.InspectChains(t.Context(), true); err != nil || len(found) > 0 {
			t.Fatal(found, err)
		}
		var b db.Batch
		b.Exec(nil, `INSERT INTO audit_redact (app_id) SELECT DISTINCT app_id FROM audit WHERE TRUE ON CONFLICT DO NOTHING`)
		b.Exec(nil, `UPDATE audit SET actor = 'eve' WHERE app = 'bad' AND seq = 1`)
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		tenancytest.WaitUntil(t, "no chain is left to redact", func() bool { return tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit_redact`) == 0 })
		cancel()
		<-ended
		if err := s.Trail.Seal(t.Context()); err != nil {
			t.Fatal(err)
		}
		flaws := map[string]int{}
		reported := map[string]bool{}
		v := audit.Verifier{OnResult: func(v audit.Result) { flaws[v.AppID] = len(v.Flaws) }}
		for line, err := range s.Trail.Export(t.Context(), audit.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			v.AddLine(line)
			if e := line.Entry; e != nil && e.Action == "audit.redact" {
				reported[string(e.AppID)] = true
			}
		}
		for _, name := range []string{"acme", "gone"} {
			id := string(ids[name])
			if flaws[id] > 0 || !reported[id] {
				t.Errorf("%s: %d flaws, reported %v", name, flaws[id], reported[id])
			}
			if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE app_id = '`+id+`' AND detail LIKE '%canary%'`); n > 0 {
				t.Errorf("%s: %d entries hold a canary", name, n)
			}
			if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE app_id = '`+id+`' AND detail LIKE '%hmac-sha256:%'`); n < 3 {
				t.Errorf("%s: %d entries hold a hash", name, n)
			}
			if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE app_id = '`+id+`' AND detail LIKE '%stays%'`); n != 1 {
				t.Errorf("%s: %d entries hold what stays", name, n)
			}
		}
		if bad := string(ids["bad"]); flaws[bad] == 0 || reported[bad] {
			t.Errorf("the bad chain has %d flaws, reported %v", flaws[bad], reported[bad])
		}
		found, err := inspector.InspectChains(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.App != "bad" && !strings.Contains(f.AppID, string(ids["bad"])) {
				t.Errorf("the inspector finds %+v", f)
			}
		}
	})
}
