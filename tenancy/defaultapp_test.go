package tenancy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestAuditDefaultConfig checks that each configuration of the default app is recorded once, however many processes
// start with it.
func TestAuditDefaultConfig(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		note := func(s *tenancy.Service, config string) {
			t.Helper()
			s.DefaultApp.Set("", []byte(config))
			if err := s.DefaultApp.Audit(t.Context(), audit.System); err != nil {
				t.Fatal(err)
			}
		}
		if err := tenancytest.NewService(t, d).DefaultApp.Audit(t.Context(), audit.System); err != nil { // no default app is set
			t.Fatal(err)
		}
		one, two := tenancytest.NewService(t, d), tenancytest.NewService(t, d)
		note(one, `{"a":1,"key":"hush"}`)
		note(two, `{"a":1,"key":"hush"}`)
		note(one, `{"a":1,"key":"hush"}`) // the file was rewritten with the same content
		note(one, `{"a":2,"key":"hush"}`)
		note(two, `{"a":2,"key":"hush"}`)
		entries, _, err := one.Trail.List(t.Context(), audit.Query{Filter: audit.Filter{Action: "config.load"}, Size: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			delete(e.Detail, "fingerprint")
			raw, err := json.Marshal(e.Detail)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.Actor.Name+" "+e.App+" "+hashPattern.ReplaceAllString(string(raw), "#"))
		}
		want := []string{`stoa default {"changes":{"config.a":{"after":"#","before":"#"}}}`, `stoa default {}`}
		if diff := cmp.Diff(want, got); diff != "" || strings.Contains(strings.Join(got, ""), "hush") {
			t.Errorf("the trail (-want +got):\n%s", diff)
		}
	})
}
