package tenancy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// extra makes tables that this package knows nothing of, with n rows of each app in each.
func extra(t *testing.T, d *db.DB, n int, apps ...db.ID) []string {
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
		schema(t, d, fmt.Sprintf(ddl, name))
		if d.Engine() == db.Postgres {
			schema(t, d, fmt.Sprintf(`SELECT stoa_protect_tenant('%s')`, name))
		}
		for _, app := range apps {
			exec(t, d.Tenant(app), fmt.Sprintf(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
				INSERT INTO %s (tenant, id) SELECT CAST($1 AS TEXT), i FROM n`, name), string(app), n)
		}
	}
	return names
}

func TestDelete(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := service(t, d)
		draft := tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "v"}}
		acme, globex := create(t, s, draft), create(t, s, tenancy.Draft{Name: "globex", Secrets: map[string]string{"S": "v"}})
		if err := s.Revoke(t.Context(), actor, "acme", "bob"); err != nil {
			t.Fatal(err)
		}
		c, _, err := s.Begin(t.Context(), tenancy.Request{Actor: actor, Key: "k", Method: "POST", Path: "/admin/apps"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Finish(t.Context(), tenancy.Answer{Status: 201, Body: []byte(`{"name":"acme"}`), App: acme.ID}); err != nil {
			t.Fatal(err)
		}
		tables := append(extra(t, d, 2500, acme.ID, globex.ID), "app", "app_revision", "app_secret", "app_mark")
		other := func(table string) int {
			return count(t, d.Platform(), `SELECT COUNT(*) FROM `+table+` WHERE tenant = $1`, string(globex.ID))
		}
		before := map[string]int{}
		for _, table := range tables {
			before[table] = other(table)
		}

		if err := s.Delete(t.Context(), actor, "acme"); err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			if n := count(t, d.Platform(), `SELECT COUNT(*) FROM `+table+` WHERE tenant = $1`, string(acme.ID)); n != 0 {
				t.Errorf("%d rows are left in %s", n, table)
			}
			if n := other(table); n != before[table] {
				t.Errorf("%d of the other app's %d rows are left in %s", n, before[table], table)
			}
		}
		if n := count(t, d.Platform(), `SELECT COUNT(*) FROM admin_call`); n != 0 {
			t.Errorf("%d idempotent answers are left", n)
		}
		if n := count(t, d.Platform(), `SELECT COUNT(*) FROM audit WHERE app_id = $1`, string(acme.ID)); n != 4 {
			t.Errorf("%d audit entries, want 4", n)
		}
		_, err = s.Get(t.Context(), "acme")
		wantErr(t, err, tenancy.ErrNotFound)
		_, err = s.Snapshot(t.Context(), acme.ID, 0)
		wantErr(t, err, tenancy.ErrNotFound)
		wantErr(t, s.Delete(t.Context(), actor, "acme"), tenancy.ErrNotFound)

		again := create(t, s, draft)
		if again.ID == acme.ID {
			t.Error("the new app of the name has the old one's id")
		}
		got, err := s.Get(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		if !got.TooOld("ana", got.CreatedAt, 0) || got.TooOld("ana", got.IssueAt("ana", got.CreatedAt), 0) {
			t.Error("a token of the second in which the name passed on is taken, or a new one refused")
		}
	})
}

// TestDeleteResumes fails half way through a deletion, as a crash would: the app stays closed, and a later Delete or
// Run completes it.
func TestDeleteResumes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		broken := true
		o := options()
		erased := map[string]int{}
		o.Erase = func(_ context.Context, app tenancy.App) error {
			if erased[app.Name]++; broken {
				return errors.New("the vectors do not go")
			}
			return nil
		}
		s := tenancy.New(d, keyring(t, masterKey), newBus(), o)
		var ids []db.ID
		for _, name := range []string{"a", "b"} {
			app := create(t, s, tenancy.Draft{Name: name, Secrets: map[string]string{"S": "v"}})
			ids = append(ids, app.ID)
			if err := s.Delete(t.Context(), actor, name); err == nil {
				t.Fatal("deleted although the vectors stay")
			}
			if got, err := s.Get(t.Context(), name); err != nil || got.Status != tenancy.Deleting {
				t.Errorf("status %s, %v, want deleting", got.Status, err)
			}
			_, err := s.Snapshot(t.Context(), app.ID, 0)
			wantErr(t, err, tenancy.ErrNotFound)
			_, err = s.Update(t.Context(), actor, name, tenancy.Change{}, false)
			wantErr(t, err, tenancy.ErrPrecondition)
			_, err = s.Resume(t.Context(), actor, name, "")
			wantErr(t, err, tenancy.ErrPrecondition)
			_, err = s.Create(t.Context(), actor, tenancy.Draft{Name: name, Config: []byte(`{}`)}, false)
			wantErr(t, err, tenancy.ErrExists)
		}
		exec(t, d.Tenant(ids[1]), `DELETE FROM app_revision WHERE tenant = $1`, string(ids[1])) // the crash came later
		if got, err := s.Get(t.Context(), "b"); err != nil || got.Status != tenancy.Deleting {
			t.Errorf("half deleted: status %s, %v, want deleting", got.Status, err)
		}

		broken = false
		if err := s.Delete(t.Context(), actor, "a"); err != nil {
			t.Fatal(err)
		}
		tidy(t, s, func() bool { return count(t, d.Platform(), `SELECT COUNT(*) FROM app`) == 0 })
		if n := count(t, d.Platform(), `SELECT COUNT(*) FROM app_secret`); n != 0 || erased["a"] != 2 || erased["b"] != 2 {
			t.Errorf("%d secrets are left, erased %v", n, erased)
		}

		exec(t, d.Tenant(ids[0]), `INSERT INTO app_mark (tenant, subject, not_before) VALUES ($1, 'late', 1)`, string(ids[0]))
		tidy(t, s, func() bool { return count(t, d.Platform(), `SELECT COUNT(*) FROM app_mark`) == 0 })
	})
}

// tidy lets s run until done.
func tidy(t *testing.T, s *tenancy.Service, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		wantErr(t, <-ended, context.Canceled)
	}()
	eventually(t, "tidied up", done)
}

// eventually waits until done, at most for some seconds.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s in time", what)
		}
	}
}

// TestRotate brings a new master key: once Run has wrapped all data keys anew, the old one can go.
func TestRotate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		next := bytes.Repeat([]byte{9}, 32)
		app := create(t, service(t, d), tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "hush"}})
		only := tenancy.New(d, keyring(t, next), newBus(), options())
		if _, err := only.Snapshot(t.Context(), app.ID, 0); err == nil {
			t.Fatal("opened without the master key")
		}
		both := tenancy.New(d, keyring(t, next, masterKey), newBus(), options())
		tidy(t, both, func() bool {
			return count(t, d.Platform(), `SELECT COUNT(*) FROM app WHERE master_key = $1`, keyring(t, next).Current()) == 1
		})
		snap, err := only.Snapshot(t.Context(), app.ID, 0)
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
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := service(t, d)
		s.SetDefault("", []byte(`{}`))
		create(t, s, tenancy.Draft{Name: "acme"})
		for _, name := range []string{"acme", "default"} {
			was, err := s.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			old := was.IssueAt("ana", now)
			refused := func(sub string) bool {
				app, err := s.Get(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if app.Generation <= was.Generation {
					t.Errorf("%s: generation %d did not grow", name, app.Generation)
				}
				if app.TooOld(sub, app.IssueAt(sub, now), 0) {
					t.Errorf("%s: a new token of %s is refused", name, sub)
				}
				return app.TooOld(sub, old, 0)
			}
			if err := s.Revoke(t.Context(), actor, name, "ana"); err != nil {
				t.Fatal(err)
			}
			if !refused("ana") || refused("bob") {
				t.Errorf("%s: after revoking ana: ana refused %v, bob %v, want true, false", name, refused("ana"), refused("bob"))
			}
			if err := s.Revoke(t.Context(), actor, name, ""); err != nil {
				t.Fatal(err)
			}
			if !refused("ana") || !refused("bob") {
				t.Errorf("%s: after revoking all: ana refused %v, bob %v, want both", name, refused("ana"), refused("bob"))
			}
		}
		if n := count(t, d.Platform(), `SELECT COUNT(*) FROM app_mark`); n != 2 {
			t.Errorf("%d marks are stored, want one for each app", n)
		}
		wantErr(t, s.Revoke(t.Context(), actor, "nobody", ""), tenancy.ErrNotFound)
		wantInvalid(t, s.Revoke(t.Context(), actor, "acme", "a\x00b"), "sub")
	})
}

// TestRunWaits shows that Run comes back to its work.
func TestRunWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		s := service(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		synctest.Wait()
		old := time.Now().Add(-25 * time.Hour).UnixMicro()
		exec(t, d.Platform(), `INSERT INTO admin_call (actor, key, request, claim, status, body, app_id, created_at)
			VALUES ('a', 'old', '', '', 200, '', '', $1), ('a', 'new', '', '', 200, '', '', stoa_now())`, old)
		time.Sleep(time.Minute)
		if n := count(t, d.Platform(), `SELECT COUNT(*) FROM admin_call`); n != 1 {
			t.Errorf("%d calls are kept, want the new one", n)
		}
		cancel()
		wantErr(t, <-done, context.Canceled)
	})
}
