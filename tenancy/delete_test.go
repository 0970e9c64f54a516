package tenancy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// createExtraTables creates tables that this package does not know, each with n rows of each app.
func createExtraTables(t *testing.T, d *db.DB, n int, apps ...db.ID) []string {
	t.Helper()
	tables := map[string]string{
		"late_arrival":  `CREATE TABLE %s (tenant TEXT NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (tenant, id))`,
		`"odd ""name"`:  `CREATE TABLE %s (tenant TEXT NOT NULL, id BIGINT NOT NULL)`,
		"without_rowid": `CREATE TABLE %s (tenant TEXT NOT NULL, id BIGINT NOT NULL, PRIMARY KEY (tenant, id))`,
	}
	if d.Engine() == db.SQLite {
		tables["without_rowid"] += ` WITHOUT ROWID`
		tables["words"] = `CREATE VIRTUAL TABLE %s USING fts5(tenant UNINDEXED, id)`
	}
	var names []string
	for name, ddl := range tables {
		names = append(names, name)
		tenancytest.ChangeSchema(t, d, fmt.Sprintf(ddl, name))
		if d.Engine() == db.Postgres {
			tenancytest.ChangeSchema(t, d, fmt.Sprintf(`SELECT stoa_protect_tenant('%s')`, name))
		}
		for _, app := range apps {
			tenancytest.ExecSQL(t, d.Tenant(app), fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
				INSERT INTO %s (tenant, id) SELECT CAST($1 AS TEXT), i FROM n`, name), string(app), n)
		}
	}
	return names
}

func TestDelete(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		draft := tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "v"}}
		acme, globex := tenancytest.CreateApp(t, s, draft), tenancytest.CreateApp(t, s, tenancy.Draft{Name: "globex", Secrets: map[string]string{"S": "v"}})
		if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, "acme", "bob"); err != nil {
			t.Fatal(err)
		}
		tables := append(createExtraTables(t, d, 2500, acme.ID, globex.ID), "app", "app_revision", "app_secret", "app_mark")
		other := func(table string) int {
			return tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM `+table+` WHERE tenant = $1`, string(globex.ID))
		}
		before := map[string]int{}
		for _, table := range tables {
			before[table] = other(table)
		}

		if err := s.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM `+table+` WHERE tenant = $1`, string(acme.ID)); n != 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
			if n := other(table); n != before[table] {
				t.Errorf("%d of the other app's %d rows are left in %s", n, before[table], table)
			}
		}
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE app_id = $1`, string(acme.ID)); n != 4 {
			t.Errorf("%d audit entries, want 4", n)
		}
		_, err := s.LoadApp(t.Context(), "acme")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		_, err = s.LoadSnapshot(t.Context(), acme.ID, 0)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		tenancytest.WantErr(t, s.DeleteApp(t.Context(), tenancytest.Actor, "acme"), agentsvc.CodeNotFound)

		again := tenancytest.CreateApp(t, s, draft)
		if again.ID == acme.ID {
			t.Error("the new app of the name has the old one's id")
		}
		got, err := s.LoadApp(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		if !got.IsTokenRevoked("ana", got.CreatedAt, 0) || got.IsTokenRevoked("ana", got.TokenIssueTime("ana", got.CreatedAt), 0) {
			t.Error("a token of the second in which the name passed on is taken, or a new one refused")
		}
	})
}

// TestDeleteResumes interrupts a deletion half way, as a crash would: the app stays closed, and a later DeleteApp or
// Run completes it.
func TestDeleteResumes(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		broken := true
		o := tenancytest.NewOptions()
		erased := map[string]int{}
		o.EraseApp = func(_ context.Context, _ audit.Actor, app tenancy.App, _ bool) error {
			if erased[app.Name]++; broken {
				return errors.New("the vectors do not go")
			}
			return nil
		}
		s := tenancy.New(d, tenancytest.NewKeyring(t, tenancytest.MasterKey), tenancytest.NewBus(), o)
		var ids []db.ID
		for _, name := range []string{"a", "b"} {
			app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: name, Secrets: map[string]string{"S": "v"}})
			ids = append(ids, app.ID)
			if err := s.DeleteApp(t.Context(), tenancytest.Actor, name); err == nil {
				t.Fatal("deleted although the vectors stay")
			}
			if got, err := s.LoadApp(t.Context(), name); err != nil || got.Status != tenancy.Deleting {
				t.Errorf("status %s, %v, want deleting", got.Status, err)
			}
			_, err := s.LoadSnapshot(t.Context(), app.ID, 0)
			tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
			_, err = s.UpdateApp(t.Context(), tenancytest.Actor, name, tenancy.AppChange{}, false)
			tenancytest.WantErr(t, err, agentsvc.CodePrecondition)
			_, err = s.ResumeApp(t.Context(), tenancytest.Actor, name, "")
			tenancytest.WantErr(t, err, agentsvc.CodePrecondition)
			_, err = s.CreateApp(t.Context(), tenancytest.Actor, tenancy.Draft{Name: name, Config: []byte(`{}`)}, false)
			tenancytest.WantErr(t, err, agentsvc.CodeExists)
		}
		tenancytest.ExecSQL(t, d.Tenant(ids[1]), `DELETE FROM app_revision WHERE tenant = $1`, string(ids[1])) // as after a crash in a later step
		if got, err := s.LoadApp(t.Context(), "b"); err != nil || got.Status != tenancy.Deleting {
			t.Errorf("half deleted: status %s, %v, want deleting", got.Status, err)
		}

		broken = false
		if err := s.DeleteApp(t.Context(), tenancytest.Actor, "a"); err != nil {
			t.Fatal(err)
		}
		runMaintenanceUntil(t, s, func() bool { return tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app`) == 0 })
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app_secret`); n != 0 || erased["a"] != 2 || erased["b"] != 2 {
			t.Errorf("%d secrets are left, erased %v", n, erased)
		}

		tenancytest.ExecSQL(t, d.Tenant(ids[0]), `INSERT INTO app_mark (tenant, subject, not_before) VALUES ($1, 'late', 1)`, string(ids[0]))
		runMaintenanceUntil(t, s, func() bool { return tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app_mark`) == 0 })
	})
}

// runMaintenanceUntil runs s until done returns true.
func runMaintenanceUntil(t *testing.T, s *tenancy.Service, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		tenancytest.WantErr(t, <-ended, context.Canceled)
	}()
	dbtest.WaitUntil(t, "tidied up", done)
}

// TestRotate adds a new master key: after Run has wrapped all data keys, the former one can be removed.
func TestRotate(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		next := bytes.Repeat([]byte{9}, 32)
		app := tenancytest.CreateApp(t, tenancytest.NewService(t, d), tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "hush"}})
		only := tenancy.New(d, tenancytest.NewKeyring(t, next), tenancytest.NewBus(), tenancytest.NewOptions())
		if _, err := only.LoadSnapshot(t.Context(), app.ID, 0); err == nil {
			t.Fatal("opened without the master key")
		}
		both := tenancy.New(d, tenancytest.NewKeyring(t, next, tenancytest.MasterKey), tenancytest.NewBus(), tenancytest.NewOptions())
		runMaintenanceUntil(t, both, func() bool {
			return tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app WHERE master_key = $1`, tenancytest.NewKeyring(t, next).CurrentKeyID()) == 1
		})
		snap, err := only.LoadSnapshot(t.Context(), app.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := snap.Secret("S"); v != "hush" {
			t.Errorf("secret %q, want hush", v)
		}
	})
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		s.DefaultApp.Set("", []byte(`{}`))
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		for _, name := range []string{"acme", "default"} {
			previous, err := s.LoadApp(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			old := previous.TokenIssueTime("ana", now)
			refused := func(sub string) bool {
				app, err := s.LoadApp(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if app.Generation <= previous.Generation {
					t.Errorf("%s: generation %d did not grow", name, app.Generation)
				}
				if app.IsTokenRevoked(sub, app.TokenIssueTime(sub, now), 0) {
					t.Errorf("%s: a new token of %s is refused", name, sub)
				}
				return app.IsTokenRevoked(sub, old, 0)
			}
			if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, name, "ana"); err != nil {
				t.Fatal(err)
			}
			if !refused("ana") || refused("bob") {
				t.Errorf("%s: after revoking ana: ana refused %v, bob %v, want true, false", name, refused("ana"), refused("bob"))
			}
			if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, name, ""); err != nil {
				t.Fatal(err)
			}
			if !refused("ana") || !refused("bob") {
				t.Errorf("%s: after revoking all: ana refused %v, bob %v, want both", name, refused("ana"), refused("bob"))
			}
		}
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app_mark`); n != 2 {
			t.Errorf("%d marks are stored, want one for each app", n)
		}
		tenancytest.WantErr(t, s.Tokens.Revoke(t.Context(), tenancytest.Actor, "nobody", ""), agentsvc.CodeNotFound)
		tenancytest.WantInvalid(t, s.Tokens.Revoke(t.Context(), tenancytest.Actor, "acme", "a\x00b"), "sub")
	})
}

// TestRunWaits checks that Run repeats its steps.
func TestRunWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		s := tenancytest.NewService(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		if err := s.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the run after the deletion
		tenancytest.ExecSQL(t, d.Tenant(app.ID), `INSERT INTO app_mark (tenant, subject, not_before) VALUES ($1, 'late', 1)`, string(app.ID))
		time.Sleep(time.Minute)
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app_mark`); n != 0 {
			t.Errorf("%d rows of a deleted app are kept", n)
		}
		cancel()
		tenancytest.WantErr(t, <-done, context.Canceled)
	})
}
