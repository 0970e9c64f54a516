package party_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/agentsvctest"
	"stoa/billing/party"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

// TestIsolation checks that each app has its own buyer and all have one seller, and that a tenant reads its own buyer
// alone.
func TestIsolation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, ctx, actor := party.New(d), t.Context(), audit.Actor{Name: "operator"}
		acme, globex, seller := tenancy.App{ID: "a", Name: "acme"}, tenancy.App{ID: "g", Name: "globex"}, tenancy.App{}
		for _, app := range []tenancy.App{acme, globex, seller} {
			_, err := s.FindParty(ctx, app)
			agentsvctest.CheckError(t, err, agentsvc.CodeNotFound)
			agentsvctest.RequireNoErrors(t, s.PutParty(ctx, actor, app, party.Party{Name: "of " + app.Name, Address: []string{"first"}}, keyring.Hasher{}))
		}
		agentsvctest.RequireNoErrors(t, s.PutParty(ctx, actor, acme, party.Party{Name: "Acme"}, keyring.Hasher{}))
		for app, want := range map[string]party.Party{"acme": {Name: "Acme"}, "globex": {Name: "of globex", Address: []string{"first"}}, "": {Name: "of ", Address: []string{"first"}}} {
			got, err := s.FindParty(ctx, map[string]tenancy.App{"acme": acme, "globex": globex, "": seller}[app])
			agentsvctest.RequireNoErrors(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%q (-want +got):\n%s", app, diff)
			}
		}
		var names []string
		var b db.Batch
		b.Query(func(r db.Row) error {
			var tenant string
			err := r.Scan(&tenant)
			names = append(names, tenant)
			return err
		}, `SELECT tenant FROM invoice_party`)
		agentsvctest.RequireNoErrors(t, d.Tenant(acme.ID).Do(ctx, &b))
		if d.Engine() == db.Postgres && (len(names) != 1 || names[0] != "a") {
			t.Errorf("the tenant reads the rows of %v", names)
		}
	})
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	s := party.New(dbtest.NewSQLite(t))
	for field, p := range map[string]party.Party{
		"name": {}, "address": {Name: "x", Address: make([]string, 9)}, "address[0]": {Name: "x", Address: []string{"a\nb"}},
		"note": {Name: "x", Note: strings.Repeat("x", 501)}, "email": {Name: "x", Email: "\xff"},
	} {
		agentsvctest.CheckInvalid(t, s.PutParty(t.Context(), audit.Actor{Name: "operator"}, tenancy.App{}, p, keyring.Hasher{}), field)
	}
}
