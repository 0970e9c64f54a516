package tenancy_test

import (
	"fmt"
	"strings"
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestInspect tampers with a trail between two inspections: the second one reports the flaw, the third nothing new.
func TestInspect(t *testing.T) {
	t.Parallel()
	const chained = ` FROM audit WHERE app = 'acme' AND seq = `
	for name, tt := range map[string]struct {
		do     string
		late   bool // found only by an inspection of all entries
		grown  bool // later entries are still chained
		want   []string
		repair string // "" = none
	}{
		"nothing":            {do: `SELECT 1`, grown: true},
		"changed long ago":   {do: `UPDATE audit SET actor = 'eve' WHERE app = 'acme' AND seq = 2`, late: true, grown: true, want: []string{"acme 2: it was changed"}, repair: `UPDATE audit SET actor = 'ana' WHERE app = 'acme' AND seq = 2`},
		"removed":            {do: `DELETE` + chained + `3`, grown: true, want: []string{"acme 4: the entry before it is missing"}},
		"removed last":       {do: `DELETE` + chained + `6`, want: []string{"acme 0: its last entries are missing: 6 to 6"}},
		"changed last":       {do: `UPDATE audit SET client = 'x' WHERE app = 'acme' AND seq = 6`, grown: true, want: []string{"acme 6: it was changed"}},
		"appended":           {do: `INSERT INTO audit (id, at, actor, action, app, app_id, detail, seq, prev, hash) SELECT 'forged', at, 'eve', action, app, app_id, detail, 9, hash, 'aa'` + chained + `6`, want: []string{"acme 0: there are entries after its end"}, grown: true},
		"another head":       {do: `UPDATE audit_head SET seq = 5 WHERE app_id = (SELECT app_id` + chained + `1)`, want: []string{"acme 0: its head is missing, or not as this platform sealed it", "acme 0: there are entries after its end"}},
		"a chain is gone":    {do: `DELETE FROM audit_head WHERE app_id = (SELECT app_id` + chained + `1)`, want: []string{" 0: there are 2 chains and should be 3"}},
		"and the count with": {do: `UPDATE audit_head SET seq = 2 WHERE app_id = '*'`, grown: true, want: []string{" 0: the number of its chains is not as this platform sealed it"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each := dbtest.ForEachEngine
			if tt.repair == "" && tt.grown {
				each = func(t *testing.T, f func(*testing.T, *db.DB)) { t.Helper(); f(t, dbtest.NewSQLite(t)) }
			}
			each(t, func(t *testing.T, d *db.DB) {
				s := tenancytest.NewService(t, d)
				acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
				writeEntries(t, s, acme.ID, 5)
				tenancytest.CreateApp(t, s, tenancy.Draft{Name: "globex"})
				writeEntries(t, s, "", 2)
				i := audit.NewInspector(s.Trail, nil)
				probe := func(afresh bool) (found []string) {
					t.Helper()
					if err := s.Trail.Seal(t.Context()); err != nil {
						t.Fatal(err)
					}
					all, err := i.InspectChains(t.Context(), afresh)
					if err != nil {
						t.Fatal(err)
					}
					for _, f := range all {
						found = append(found, fmt.Sprintf("%s %d: %s", f.App, f.Seq, f.Text))
					}
					return found
				}
				if found := probe(true); found != nil {
					t.Fatalf("a good trail: %q", found)
				}
				tenancytest.ExecSQL(t, d.Platform(), tt.do)
				writeEntries(t, s, "", 1) // further entries are added
				if name != "appended" {
					writeEntries(t, s, acme.ID, 1)
				}
				found := probe(false)
				if tt.late {
					if found != nil {
						t.Errorf("what is new holds %q", found)
					}
					found = probe(true)
				}
				same := len(found) == len(tt.want)
				for j := range min(len(found), len(tt.want)) {
					same = same && strings.HasPrefix(found[j], tt.want[j])
				}
				if !same {
					t.Errorf("found %q, want %q", found, tt.want)
				}
				if again := probe(true); again != nil {
					t.Errorf("found once more: %q", again)
				}
				if known, n, err := s.Trail.ListFlaws(t.Context(), ""); err != nil || int(n) != len(tt.want) || len(known) != len(tt.want) {
					t.Errorf("%d are known: %+v, %v", n, known, err)
				}
				if unchained := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE seq = 0`); (unchained == 0) != tt.grown {
					t.Errorf("%d entries are outside their chains", unchained)
				}
				if tt.repair == "" {
					return
				}
				tenancytest.ExecSQL(t, d.Platform(), tt.repair)
				probe(true)
				if known, _, err := s.Trail.ListFlaws(t.Context(), string(acme.ID)); err != nil || len(known) != 0 {
					t.Errorf("a chain that is good again has %+v, %v", known, err)
				}
			})
		})
	}
}
