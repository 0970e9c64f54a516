package tenancy_test

import (
	"testing"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestIsolation reads the rows of one app through the handle of another, of no tenant, and of the app itself.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t) // SQLite has no row-level security
	s := newService(t, d)
	draft := tenancy.Draft{Secrets: map[string]string{"S": "v"}}
	var apps []tenancy.App
	for _, name := range []string{"alice", "bob"} {
		draft.Name = name
		apps = append(apps, createApp(t, s, draft))
		if err := s.RevokeTokens(t.Context(), actor, name, "x"); err != nil {
			t.Fatal(err)
		}
		createKey(t, s, name, name)
		if _, err := s.AddRole(t.Context(), actor, name, tenancy.Role{Name: "desk"}); err != nil {
			t.Fatal(err)
		}
	}
	c, _, err := s.ClaimIdempotencyKey(t.Context(), tenancy.IdempotentRequest{Actor: actor, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StoreResponse(t.Context(), tenancy.StoredResponse{Status: 200, App: apps[0].ID}); err != nil {
		t.Fatal(err)
	}
	alice, bob, noApp := d.Tenant(apps[0].ID), d.Tenant(apps[1].ID), d.Tenant("")
	for _, table := range []string{"app", "app_revision", "app_secret", "app_mark", "api_key", "app_role"} {
		t.Run(table, func(t *testing.T) {
			of := `SELECT COUNT(*) FROM ` + table + ` WHERE tenant = $1`
			all := `SELECT COUNT(*) FROM ` + table
			if n := countRows(t, alice, of, string(apps[0].ID)); n != 1 {
				t.Errorf("Alice sees %d rows of hers, want 1", n)
			}
			if n := countRows(t, bob, of, string(apps[0].ID)); n != 0 {
				t.Errorf("Bob sees %d rows of Alice's", n)
			}
			if n := countRows(t, bob, all); n != 1 {
				t.Errorf("Bob sees %d rows, want his own", n)
			}
			if n := countRows(t, noApp, all); n != 0 {
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
	for _, table := range []string{"audit", "admin_call"} {
		var b db.Batch
		b.Query(func(db.Row) error { return nil }, `SELECT * FROM `+table)
		if err := alice.Do(t.Context(), &b); err == nil {
			t.Errorf("a tenant may read %s", table)
		}
	}
}

// TestSealedElsewhere moves an encrypted secret to another app in the database: it cannot be decrypted there.
func TestSealedElsewhere(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		alice := createApp(t, s, tenancy.Draft{Name: "alice", Secrets: map[string]string{"S": "v"}})
		bob := createApp(t, s, tenancy.Draft{Name: "bob"})
		execSQL(t, d.Platform(), `INSERT INTO app_secret (tenant, name, value, created_at, updated_at)
			SELECT $1, name, value, created_at, updated_at FROM app_secret WHERE tenant = $2`, string(bob.ID), string(alice.ID))
		if _, err := s.LoadSnapshot(t.Context(), bob.ID, 0); err == nil {
			t.Error("another app's secret was opened")
		}
	})
}
