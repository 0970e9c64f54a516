package tenancy_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/grant"
	"stoa/tenancy/tenancytest"
)

func TestList(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		s.DefaultApp.Set("", []byte(`{}`))
		for _, name := range []string{"zeta", "a-b", "ab", "a0", "eve", "d"} {
			tenancytest.CreateApp(t, s, tenancy.Draft{Name: name, Config: []byte(`{"key":"k"}`)})
		}
		for _, name := range []string{"ab", "zeta"} {
			if _, err := s.SuspendApp(t.Context(), tenancytest.Actor, name, ""); err != nil {
				t.Fatal(err)
			}
		}
		tests := []struct {
			status tenancy.Status
			size   int
			want   [][]string
			total  int
		}{
			{"", 100, [][]string{{"a-b", "a0", "ab", "d", "default", "eve", "zeta"}}, 7},
			{"", 7, [][]string{{"a-b", "a0", "ab", "d", "default", "eve", "zeta"}}, 7},
			{"", 3, [][]string{{"a-b", "a0", "ab"}, {"d", "default", "eve"}, {"zeta"}}, 7},
			{"", 1, [][]string{{"a-b"}, {"a0"}, {"ab"}, {"d"}, {"default"}, {"eve"}, {"zeta"}}, 7},
			{tenancy.Active, 2, [][]string{{"a-b", "a0"}, {"d", "default"}, {"eve"}}, 5},
			{tenancy.Suspended, 2, [][]string{{"ab", "zeta"}}, 2},
			{tenancy.Deleting, 2, [][]string{nil}, 0},
		}
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s by %d", tt.status, tt.size), func(t *testing.T) {
				var got [][]string
				q := tenancy.AppQuery{Status: tt.status, Size: tt.size}
				for more := true; more; more = q.Token != "" {
					page, err := s.ListApps(t.Context(), q)
					if err != nil {
						t.Fatal(err)
					}
					var names []string
					for _, app := range page.Apps {
						names = append(names, app.Name)
						if app.Config.Text != nil {
							t.Errorf("%s is listed with its configuration", app.Name)
						}
					}
					got, q.Token = append(got, names), page.Next
					if page.Total != tt.total {
						t.Errorf("total %d, want %d", page.Total, tt.total)
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("pages (-want +got):\n%s", diff)
				}
			})
		}
	})
}

func TestListRefused(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	for _, name := range []string{"a", "b"} {
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: name})
	}
	page, err := s.ListApps(t.Context(), tenancy.AppQuery{Size: 1})
	if err != nil || page.Next == "" {
		t.Fatalf("first page: next %q, %v", page.Next, err)
	}
	for name, tt := range map[string]struct {
		q     tenancy.AppQuery
		field string
	}{
		"size 0":       {tenancy.AppQuery{}, "page_size"},
		"size 101":     {tenancy.AppQuery{Size: 101}, "page_size"},
		"size -1":      {tenancy.AppQuery{Size: -1}, "page_size"},
		"status":       {tenancy.AppQuery{Size: 1, Status: "gone"}, "status"},
		"forged":       {tenancy.AppQuery{Size: 1, Token: "YQ"}, "page_token"},
		"other filter": {tenancy.AppQuery{Size: 1, Status: tenancy.Active, Token: page.Next}, "page_token"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.ListApps(t.Context(), tt.q)
			tenancytest.WantInvalid(t, err, tt.field)
		})
	}
	_, _, err = s.Trail.List(t.Context(), audit.Query{Size: 1, Token: page.Next})
	tenancytest.WantInvalid(t, err, "page_token")
}

func TestAuditTrail(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		s.DefaultApp.Set("", []byte(`{}`))
		first := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "hush"}, Grants: grant.ParseList([]string{"stdio"})})
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "globex"})
		steps := []func() error{
			func() error {
				_, err := s.UpdateApp(t.Context(), audit.Actor{Name: "ana"}, "acme", tenancy.AppChange{Config: []byte(`{"key":"hush"}`)}, false)
				return err
			},
			func() error {
				return s.Secrets.Store(t.Context(), audit.Actor{Name: "ana"}, "acme", "T", "hush", tenancy.Precondition{})
			},
			func() error {
				return s.Secrets.Delete(t.Context(), audit.Actor{Name: "ana"}, "acme", "T", tenancy.Precondition{})
			},
			func() error {
				_, err := s.Revisions.Restore(t.Context(), audit.Actor{Name: "ana"}, "acme", 1, false, tenancy.Precondition{})
				return err
			},
			func() error { _, err := s.SuspendApp(t.Context(), tenancytest.Actor, "acme", "unpaid"); return err },
			func() error { _, err := s.ResumeApp(t.Context(), tenancytest.Actor, "acme", ""); return err },
			func() error { return s.Tokens.Revoke(t.Context(), tenancytest.Actor, "acme", "bob") },
			func() error { return s.Tokens.Revoke(t.Context(), tenancytest.Actor, "default", "") },
			func() error {
				return s.Trail.Record(t.Context(), audit.Entry{Actor: audit.Actor{Name: "ana"}, Action: "app.token", App: "acme", AppID: first.ID})
			},
			func() error { return s.DeleteApp(t.Context(), tenancytest.Actor, "acme") },
		}
		for i, do := range steps {
			if err := do(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
		_, err := s.UpdateApp(t.Context(), audit.Actor{Name: "ana"}, "globex", tenancy.AppChange{Config: []byte(`[`)}, false)
		tenancytest.WantErr(t, err, tenancytest.ErrCheck)
		second := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})

		acme := []string{
			"operator app.create", "stoa app.deleted", "operator app.delete", "ana app.token", "operator app.tokens.revoke", "operator app.resume",
			"operator app.suspend", "ana app.restore", "ana app.secret.delete", "ana app.secret.put", "ana app.update", "operator app.create",
		}
		tests := []struct {
			name string
			q    audit.Query
			want []string
		}{
			{"name", audit.Query{Filter: audit.Filter{App: "acme"}, Size: 5}, acme},
			{"id", audit.Query{Filter: audit.Filter{App: string(first.ID)}, Size: 100}, acme[1:]},
			{"new id", audit.Query{Filter: audit.Filter{App: string(second.ID)}, Size: 1}, acme[:1]},
			{"default", audit.Query{Filter: audit.Filter{App: "default"}, Size: 1}, []string{"operator app.tokens.revoke"}},
			{"actor", audit.Query{Filter: audit.Filter{Actor: "ana"}, Size: 2}, []string{"ana app.token", "ana app.restore", "ana app.secret.delete", "ana app.secret.put", "ana app.update"}},
			{"action", audit.Query{Filter: audit.Filter{Actor: "ana", Action: "app.secret"}, Size: 2}, []string{"ana app.secret.delete", "ana app.secret.put"}},
			{"prefix", audit.Query{Filter: audit.Filter{Actor: "ana", Action: "app.secret."}, Size: 2}, []string{"ana app.secret.delete", "ana app.secret.put"}},
			{"prefix of an action alone", audit.Query{Filter: audit.Filter{Actor: "ana", Action: "app.secret.put."}, Size: 2}, nil},
			{"both", audit.Query{Filter: audit.Filter{Actor: "ana", App: "globex"}, Size: 2}, nil},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				var got []string
				for more := true; more; more = tt.q.Token != "" {
					entries, next, err := s.Trail.List(t.Context(), tt.q)
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range entries {
						got = append(got, e.Actor.Name+" "+e.Action)
					}
					if len(entries) > tt.q.Size {
						t.Errorf("page of %d entries, want at most %d", len(entries), tt.q.Size)
					}
					tt.q.Token = next
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("trail (-want +got):\n%s", diff)
				}
			})
		}
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE detail LIKE '%hush%'`); n != 0 {
			t.Errorf("%d entries tell a secret", n)
		}
		entries, _, err := s.Trail.List(t.Context(), audit.Query{Filter: audit.Filter{App: string(first.ID)}, Size: 100})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range map[int]string{
			0: `{"after":{"grants":["stdio"],"limits":{"max_concurrent_tasks":0,"queue_depth":0,"rate":[],"weight":0},
				"plan":"","revision":1,"status":"active"},"secrets":["S"]}`,
			1: `{"after":{"revision":2},"before":{"revision":1},"changes":{"config.key":{"after":"#"}}}`,
			2: `{"secrets":["T"]}`,
			3: `{"secrets":["T"]}`,
			4: `{"after":{"revision":3},"before":{"revision":2},"changes":{"config.key":{"before":"#"}},"restored":1}`,
			5: `{"after":{"status":"suspended"},"before":{"status":"active"},"reason":"unpaid"}`,
			6: `{"after":{"status":"active"},"before":{"status":"suspended"}}`,
			7: `{"sub":"bob"}`,
			8: `{}`,
			9: `{"after":{"status":"deleting"},"before":{"status":"active"}}`,
		} {
			got, err := json.Marshal(entries[len(entries)-1-i].Detail)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.ReplaceAll(want, "\n\t\t\t\t", ""), hashPattern.ReplaceAllString(string(got), "#")); diff != "" {
				t.Errorf("detail of step %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// hashPattern matches the keyed hashes of an entry.
var hashPattern = regexp.MustCompile(`hmac-sha256:[0-9a-f]{32}`)
