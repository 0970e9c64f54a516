package tenancy_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestNoteDefault: each configuration of the default app stands on the trail once, however many processes start with it.
func TestNoteDefault(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		note := func(s *tenancy.Service, config string) {
			t.Helper()
			s.SetDefault("", []byte(config))
			if err := s.NoteDefault(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := service(t, d).NoteDefault(t.Context()); err != nil { // there is none
			t.Fatal(err)
		}
		one, two := service(t, d), service(t, d)
		note(one, `{"a":1,"key":"hush"}`)
		note(two, `{"a":1,"key":"hush"}`)
		note(one, `{"a":1,"key":"hush"}`) // its file was touched
		note(one, `{"a":2,"key":"hush"}`)
		note(two, `{"a":2,"key":"hush"}`)
		entries, _, err := one.AuditTrail(t.Context(), tenancy.AuditQuery{AuditFilter: tenancy.AuditFilter{Action: "config.load"}, Size: 10})
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
			got = append(got, e.Actor+" "+e.App+" "+hashes.ReplaceAllString(string(raw), "#"))
		}
		want := []string{`stoa default {"changes":{"config.a":{"after":"#","before":"#"}}}`, `stoa default {}`}
		if diff := cmp.Diff(want, got); diff != "" || strings.Contains(strings.Join(got, ""), "hush") {
			t.Errorf("the trail (-want +got):\n%s", diff)
		}
	})
}
