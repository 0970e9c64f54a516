package tenancy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// listFailures returns the entries about failed authentications as "app client credential reason count", the oldest
// first, and the number of failures in all of them.
func listFailures(t *testing.T, s *tenancy.Service) (lines map[string]bool, total int64) {
	t.Helper()
	lines = map[string]bool{}
	for q := (audit.Query{Filter: audit.Filter{Action: "authentication.fail"}, Size: audit.MaxPageSize}); ; {
		entries, next, err := s.Trail.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			n, err := e.Detail["count"].(json.Number).Int64()
			first, err1 := time.Parse(time.RFC3339, e.Detail["first_at"].(string))
			last, err2 := time.Parse(time.RFC3339, e.Detail["last_at"].(string))
			if err != nil || err1 != nil || err2 != nil || first.After(last) || time.Since(first) > time.Hour || e.Actor.Name != "stoa" {
				t.Errorf("%+v", e)
			}
			total += n
			lines[fmt.Sprint(e.App, " ", e.Actor.Client, " ", e.Detail["credential"], " ", e.Detail["reason"], " ", e.Detail["other_clients"], " ", n)] = true
		}
		if q.Token = next; next == "" {
			return lines, total
		}
	}
}

// TestFailedCredentials checks that failed authentications are one entry for each app, client, kind and reason, that an
// attack from many addresses leaves a bounded number of entries, and that none is lost while the database fails.
func TestFailedCredentials(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		f := audit.NewFailedCredentials(s.Trail)
		token := audit.FailedCredential{AppID: app.ID, Credential: "token", Reason: "revoked", Client: "192.0.2.1"}
		secret := audit.FailedCredential{Credential: "admin_secret", Reason: "invalid", Client: "192.0.2.1"}
		write := func() {
			t.Helper()
			if err := f.Write(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		write() // nothing
		for range 3 {
			f.Count(token)
			f.Count(secret)
		}
		write()
		f.Count(token)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.Write(cancelled); err == nil {
			t.Error("a write whose context has ended succeeds")
		}
		f.Count(token)
		write()
		got, _ := listFailures(t, s)
		if diff := cmp.Diff(map[string]bool{
			"acme 192.0.2.1 token revoked <nil> 3":    true,
			" 192.0.2.1 admin_secret invalid <nil> 3": true,
			"acme 192.0.2.1 token revoked <nil> 2":    true,
		}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		const addresses = 5000
		for i := range addresses {
			f.Count(audit.FailedCredential{Credential: "token", Reason: "invalid", Client: fmt.Sprintf("192.0.%d.%d", i/256, i%256)})
		}
		write()
		got, total := listFailures(t, s)
		if len(got) > 60 || total != addresses+8 || !got[fmt.Sprintf("  <nil> <nil> true %d", addresses-50)] {
			t.Errorf("%d entries about %d failures: %v", len(got), total, got)
		}
		if flaws, _ := verifyTrail(t, s, ""); len(flaws) > 0 {
			t.Errorf("flaws %v", flaws)
		}
	})
}
