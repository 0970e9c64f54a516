package tenancy_test

import (
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestIsolation reads the rows of one app through the handle of another, of no tenant, and of the app itself.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t) // SQLite has no row-level security
	s := tenancytest.NewService(t, d)
	draft := tenancy.Draft{Secrets: map[string]string{"S": "v"}}
	var apps []tenancy.App
	for _, name := range []string{"alice", "bob"} {
		draft.Name = name
		apps = append(apps, tenancytest.CreateApp(t, s, draft))
		if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, name, "x"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Roles.Add(t.Context(), tenancytest.Actor, name, tenancy.Role{Name: "desk"}); err != nil {
			t.Fatal(err)
		}
	}
	alice, bob, none := d.Tenant(apps[0].ID), d.Tenant(apps[1].ID), d.Tenant("")
	for _, table := range []string{"app", "app_revision", "app_secret", "app_mark", "app_role"} {
		t.Run(table, func(t *testing.T) {
			of := `SELECT COUNT(*) FROM ` + table + ` WHERE tenant = $1`
			all := `SELECT COUNT(*) FROM ` + table
			if n := tenancytest.CountRows(t, alice, of, string(apps[0].ID)); n != 1 {
				t.Errorf("Alice sees %d rows of hers, want 1", n)
			}
			if n := tenancytest.CountRows(t, bob, of, string(apps[0].ID)); n != 0 {
				t.Errorf("Bob sees %d rows of Alice's", n)
			}
			if n := tenancytest.CountRows(t, bob, all); n != 1 {
				t.Errorf("Bob sees %d rows, want his own", n)
			}
			if n := tenancytest.CountRows(t, none, all); n != 0 {
				t.Errorf("without a tenant %d rows are seen", n)
			}
			var b db.Batch
			var n int64
			b.Exec(&n, `DELETE FROM `+table+` WHERE tenant = $1`, string(apps[0].ID))
			if err := bob.Do(t.Context(), &b); err != nil || n != 0 {
				t.Errorf("Bob deleted %d rows of Alice's, %v", n, err)
			}
		})
	}
	var b db.Batch
	b.Query(func(db.Row) error { return nil }, `SELECT * FROM audit`)
	if err := alice.Do(t.Context(), &b); err == nil {
		t.Error("a tenant may read the audit trail")
	}
}

// TestSealedElsewhere moves an encrypted secret to another app in the database: it cannot be decrypted there.
func TestSealedElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		alice := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "alice", Secrets: map[string]string{"S": "v"}})
		bob := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "bob"})
		tenancytest.ExecSQL(t, d.Platform(), `INSERT INTO app_secret (tenant, name, value, created_at, updated_at)
			SELECT $1, name, value, created_at, updated_at FROM app_secret WHERE tenant = $2`, string(bob.ID), string(alice.ID))
		if _, err := s.LoadSnapshot(t.Context(), bob.ID, 0); err == nil {
			t.Error("another app's secret was opened")
		}
	})
}
