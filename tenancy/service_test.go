package tenancy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/grant"
	"stoa/tenancy/tenancytest"
)

var ignoreTimes = cmpopts.IgnoreFields(tenancy.App{}, "ID", "CreatedAt", "UpdatedAt")

func diffApp(want, got tenancy.App) string {
	return cmp.Diff(want, got, ignoreTimes, cmpopts.IgnoreUnexported(tenancy.App{}))
}

// masked returns a configuration of tests as it is returned with masked secrets.
func masked(text string) tenancy.MaskedConfig {
	return tenancy.MaskedConfig{Text: []byte(text), JSON: []byte(text)}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		draft := tenancy.Draft{
			Name: "acme", DisplayName: "Acme, Inc.", Config: []byte(`{"needs": ["S"], "key": "key-of-acme", "command": true}`),
			Secrets: map[string]string{"S": "hush"}, Grants: grant.ParseList([]string{"stdio", "command=/srv/acme", "stdio"}), Plan: "pro", Labels: map[string]string{"team": "a"},
		}
		want := tenancy.App{
			Name: "acme", DisplayName: "Acme, Inc.", Status: tenancy.Active, Version: tenancy.Version{Revision: 1, Inputs: 1, Generation: 1},
			Grants: grant.ParseList([]string{"command=/srv/acme", "stdio"}), Plan: "pro", Labels: map[string]string{"team": "a"},
			Config: masked(`{"needs": ["S"], "key": "********", "command": true}`),
		}
		dry, err := s.CreateApp(t.Context(), tenancytest.Actor, draft, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffApp(want, dry); diff != "" {
			t.Errorf("dry run (-want +got):\n%s", diff)
		}
		_, err = s.LoadApp(t.Context(), "acme")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)

		app, err := s.CreateApp(t.Context(), tenancytest.Actor, draft, false)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffApp(want, app); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
		if app.ID == "" || app.CreatedAt.IsZero() || app.UpdatedAt.Sub(app.CreatedAt).Abs() > time.Second {
			t.Errorf("id %q, created %v, updated %v", app.ID, app.CreatedAt, app.UpdatedAt)
		}
		got, err := s.LoadApp(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(app, got, cmpopts.IgnoreUnexported(tenancy.App{})); diff != "" {
			t.Errorf("got (-created +got):\n%s", diff)
		}
		for _, dryRun := range []bool{true, false} {
			_, err = s.CreateApp(t.Context(), tenancytest.Actor, draft, dryRun)
			tenancytest.WantErr(t, err, agentsvc.CodeExists)
		}
		snap, err := s.LoadSnapshot(t.Context(), app.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v, ok := snap.Secret("S"); v != "hush" || !ok || string(snap.Config) != string(draft.Config) {
			t.Errorf("snapshot has secret %q, config %s", v, snap.Config)
		}
		for _, table := range []string{"app", "app_revision", "app_secret", "audit"} {
			col := map[string]string{"app_revision": "config", "app_secret": "value", "audit": "detail", "app": "labels"}[table]
			if n := tenancytest.CountRows(t, d.Platform(), fmt.Sprintf(`SELECT COUNT(*) FROM %s WHERE CAST(%s AS TEXT) LIKE '%%hush%%' OR CAST(%[2]s AS TEXT) LIKE '%%key-of-acme%%'`, table, col)); n != 0 {
				t.Errorf("a secret can be read in %s", table)
			}
		}
	})
}

func TestCreateRefused(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	long := strings.Repeat("a", 64)
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("S%d", i)] = "x"
		}
		return m
	}
	ok := []byte(`{}`)
	tests := []struct {
		name  string
		draft tenancy.Draft
		field string // of an InvalidError
		err   error
	}{
		{"upper case", tenancy.Draft{Name: "A", Config: ok}, "name", nil},
		{"path", tenancy.Draft{Name: "../x", Config: ok}, "name", nil},
		{"colons", tenancy.Draft{Name: "a::b", Config: ok}, "name", nil},
		{"64 characters", tenancy.Draft{Name: long, Config: ok}, "name", nil},
		{"emoji", tenancy.Draft{Name: "😀", Config: ok}, "name", nil},
		{"no name", tenancy.Draft{Config: ok}, "name", nil},
		{"default", tenancy.Draft{Name: "default", Config: ok}, "", agentsvc.CodeExists},
		{"no config", tenancy.Draft{Name: "a"}, "config", nil},
		{"huge config", tenancy.Draft{Name: "a", Config: make([]byte, tenancy.MaxConfigSize+1)}, "config", nil},
		{"config does not load", tenancy.Draft{Name: "a", Config: []byte(`{"needs":["S"]}`)}, "", tenancytest.ErrCheck},
		{"config is none", tenancy.Draft{Name: "a", Config: []byte(`[`)}, "", tenancytest.ErrCheck},
		{"no grant", tenancy.Draft{Name: "a", Config: []byte(`{"command":true}`)}, "", tenancytest.ErrCheck},
		{"display name", tenancy.Draft{Name: "a", Config: ok, DisplayName: strings.Repeat("x", 201)}, "display_name", nil},
		{"control character", tenancy.Draft{Name: "a", Config: ok, DisplayName: "a\nb"}, "display_name", nil},
		{"secret's name", tenancy.Draft{Name: "a", Config: ok, Secrets: map[string]string{"1x": "v"}}, "secrets", nil},
		{"secret's size", tenancy.Draft{Name: "a", Config: ok, Secrets: map[string]string{"S": strings.Repeat("x", tenancy.MaxSecretSize+1)}}, "secrets.S", nil},
		{"many secrets", tenancy.Draft{Name: "a", Config: ok, Secrets: many(tenancy.MaxSecrets + 1)}, "secrets", nil},
		{"label", tenancy.Draft{Name: "a", Config: ok, Labels: map[string]string{"a b": "v"}}, "labels", nil},
		{"label's value", tenancy.Draft{Name: "a", Config: ok, Labels: map[string]string{"a": "\x00"}}, "labels.a", nil},
		{"many labels", tenancy.Draft{Name: "a", Config: ok, Labels: many(65)}, "labels", nil},
		{"plan", tenancy.Draft{Name: "a", Config: ok, Plan: "a b"}, "plan", nil},
		{"grant", tenancy.Draft{Name: "a", Config: ok, Grants: grant.List{{}}}, "grants", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.CreateApp(t.Context(), tenancytest.Actor, tt.draft, false)
			if tt.field != "" {
				tenancytest.WantInvalid(t, err, tt.field)
			} else {
				tenancytest.WantErr(t, err, tt.err)
			}
		})
	}
	page, err := s.ListApps(t.Context(), tenancy.AppQuery{Size: 1})
	if err != nil || page.Total != 0 {
		t.Errorf("%d apps, %v after refused creates, want 0", page.Total, err)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	text := func(s string) *string { return &s }
	base := tenancy.App{
		Name: "acme", DisplayName: "Acme", Status: tenancy.Active, Version: tenancy.Version{Revision: 1, Inputs: 1, Generation: 1},
		Grants: grant.ParseList([]string{"stdio"}), Plan: "free", Labels: map[string]string{"a": "b"}, Config: masked(`{"key": "********"}`),
	}
	with := func(f func(a *tenancy.App)) tenancy.App {
		a := base
		a.Generation = 2
		f(&a)
		return a
	}
	tests := []struct {
		name   string
		change tenancy.AppChange
		want   tenancy.App
		stored string // the text of the configuration afterwards
		err    error
	}{
		{"nothing", tenancy.AppChange{}, with(func(*tenancy.App) {}), `{"key": "k1"}`, nil},
		{"display name", tenancy.AppChange{DisplayName: text("")}, with(func(a *tenancy.App) { a.DisplayName = "" }), `{"key": "k1"}`, nil},
		{"config", tenancy.AppChange{Config: []byte(`{"x": 1}`)}, with(func(a *tenancy.App) { a.Revision, a.Config = 2, masked(`{"x": 1}`) }), `{"x": 1}`, nil},
		{"same config", tenancy.AppChange{Config: []byte(`{"key": "k1"}`)}, with(func(*tenancy.App) {}), `{"key": "k1"}`, nil},
		{"masked config", tenancy.AppChange{Config: []byte(`{"key": "********", "x": 1}`)},
			with(func(a *tenancy.App) {
				a.Revision, a.Config = 2, masked(`{"key": "********", "x": 1}`)
			}), `{"key": "k1", "x": 1}`, nil},
		{"grants", tenancy.AppChange{Grants: grant.ParseList([]string{"command=/srv/acme"})}, with(func(a *tenancy.App) { a.Inputs, a.Grants = 2, grant.ParseList([]string{"command=/srv/acme"}) }), `{"key": "k1"}`, nil},
		{"no grants", tenancy.AppChange{Grants: grant.List{}}, with(func(a *tenancy.App) { a.Inputs, a.Grants = 2, grant.List{} }), `{"key": "k1"}`, nil},
		{"same grants", tenancy.AppChange{Grants: grant.List{{Name: grant.Stdio}, {Name: grant.Stdio}}}, with(func(*tenancy.App) {}), `{"key": "k1"}`, nil},
		{"plan", tenancy.AppChange{Plan: text("pro")}, with(func(a *tenancy.App) { a.Inputs, a.Plan = 2, "pro" }), `{"key": "k1"}`, nil},
		{"labels", tenancy.AppChange{Labels: map[string]string{}}, with(func(a *tenancy.App) { a.Labels = map[string]string{} }), `{"key": "k1"}`, nil},
		{"secret and config", tenancy.AppChange{Secrets: map[string]string{"S": "v"}, Config: []byte(`{"needs":["S"]}`)},
			with(func(a *tenancy.App) { a.Revision, a.Inputs, a.Config = 2, 2, masked(`{"needs":["S"]}`) }), `{"needs":["S"]}`, nil},
		{"its revision", tenancy.AppChange{Precondition: tenancy.Precondition{IfMatch: []string{"r1"}}, Plan: text("pro")}, with(func(a *tenancy.App) { a.Inputs, a.Plan = 2, "pro" }), `{"key": "k1"}`, nil},
		{"another revision", tenancy.AppChange{Precondition: tenancy.Precondition{IfMatch: []string{"r2"}}, Plan: text("pro")}, base, `{"key": "k1"}`, agentsvc.CodePrecondition},
		{"its tag", tenancy.AppChange{Precondition: tenancy.Precondition{IfMatch: []string{"7", "1"}}, DisplayName: text("")}, with(func(a *tenancy.App) { a.DisplayName = "" }), `{"key": "k1"}`, nil},
		{"another tag", tenancy.AppChange{Precondition: tenancy.Precondition{IfMatch: []string{"7"}}, DisplayName: text("")}, base, `{"key": "k1"}`, agentsvc.CodePrecondition},
		{"what is not a secret of it", tenancy.AppChange{RemovedSecrets: []string{"S"}}, with(func(*tenancy.App) {}), `{"key": "k1"}`, nil},
		{"config does not load", tenancy.AppChange{Config: []byte(`{"needs":["S"]}`)}, base, `{"key": "k1"}`, tenancytest.ErrCheck},
	}
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		for i, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				name := fmt.Sprintf("acme-%d", i)
				previous := tenancytest.CreateApp(t, s, tenancy.Draft{Name: name, DisplayName: "Acme", Config: []byte(`{"key": "k1"}`), Grants: grant.ParseList([]string{"stdio"}), Plan: "free", Labels: map[string]string{"a": "b"}})
				tt.want.Name = name
				_, err := s.UpdateApp(t.Context(), tenancytest.Actor, name, tt.change, true)
				tenancytest.WantErr(t, err, tt.err)
				if app, err := s.LoadApp(t.Context(), name); err != nil || app.Generation != 1 {
					t.Errorf("after a dry run: generation %d, %v", app.Generation, err)
				}
				app, err := s.UpdateApp(t.Context(), tenancytest.Actor, name, tt.change, false)
				tenancytest.WantErr(t, err, tt.err)
				if err == nil {
					if diff := diffApp(tt.want, app); diff != "" {
						t.Errorf("updated (-want +got):\n%s", diff)
					}
				}
				got, err := s.LoadApp(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if diff := diffApp(tt.want, got); diff != "" || got.ID != previous.ID || !got.CreatedAt.Equal(previous.CreatedAt) {
					t.Errorf("stored (-want +got):\n%s", diff)
				}
				snap, err := s.LoadSnapshot(t.Context(), previous.ID, 0)
				if err != nil || string(snap.Config) != tt.stored {
					t.Errorf("stored configuration %s, %v, want %s", snap.Config, err, tt.stored)
				}
			})
		}
		_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "nobody", tenancy.AppChange{}, false)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
	})
}

// TestStaleTag tries each change of an app's record with the tag of a former state: none is made.
func TestStaleTag(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		former := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "v"}})
		stale := former.Tag()
		now, err := s.SuspendApp(t.Context(), tenancytest.Actor, "acme", "", stale)
		if err != nil || now.Tag() == stale {
			t.Fatalf("suspended with the tag %s: %v, and the tag %s", stale, err, now.Tag())
		}
		for name, do := range map[string]func() error{
			"update": func() error {
				_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Precondition: tenancy.Precondition{IfMatch: []string{stale}}}, false)
				return err
			},
			"suspend": func() error { _, err := s.SuspendApp(t.Context(), tenancytest.Actor, "acme", "", stale); return err },
			"resume":  func() error { _, err := s.ResumeApp(t.Context(), tenancytest.Actor, "acme", "", stale); return err },
			"restore": func() error {
				_, err := s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", 1, false, tenancy.Precondition{IfMatch: []string{stale}})
				return err
			},
			"store a secret": func() error {
				return s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "w", tenancy.Precondition{IfMatch: []string{stale}})
			},
			"delete a secret": func() error {
				return s.Secrets.Delete(t.Context(), tenancytest.Actor, "acme", "S", tenancy.Precondition{IfMatch: []string{stale}})
			},
			"delete": func() error { return s.DeleteApp(t.Context(), tenancytest.Actor, "acme", stale) },
		} {
			t.Run(name, func(t *testing.T) { tenancytest.WantErr(t, do(), agentsvc.CodePrecondition) })
		}
		got, err := s.LoadApp(t.Context(), "acme")
		if err != nil || got.Tag() != now.Tag() || got.Status != tenancy.Suspended {
			t.Errorf("%s at %s, %v, want %s at %s", got.Status, got.Tag(), err, tenancy.Suspended, now.Tag())
		}
		tenancytest.WantErr(t, s.DeleteApp(t.Context(), tenancytest.Actor, "acme", now.Tag()), nil)
	})
}

// TestPreconditionID tries each change that an app's own developers may make with the id of an earlier app of that
// name.
func TestPreconditionID(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	earlier := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
	tenancytest.WantErr(t, s.DeleteApp(t.Context(), tenancytest.Actor, "acme"), nil)
	app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Secrets: map[string]string{"S": "v"}})
	p := tenancy.Precondition{ID: earlier.ID}
	for name, do := range map[string]func() error{
		"update": func() error {
			_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Precondition: p}, false)
			return err
		},
		"restore": func() error {
			_, err := s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", 1, false, p)
			return err
		},
		"store a secret":  func() error { return s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "w", p) },
		"delete a secret": func() error { return s.Secrets.Delete(t.Context(), tenancytest.Actor, "acme", "S", p) },
	} {
		t.Run(name, func(t *testing.T) { tenancytest.WantErr(t, do(), agentsvc.CodeNotFound) })
	}
	if got, err := s.LoadApp(t.Context(), "acme"); err != nil || got.Generation != app.Generation {
		t.Errorf("the later app is at generation %d, %v, want %d", got.Generation, err, app.Generation)
	}
	// A dry run of a restore checks and changes nothing.
	got, err := s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", 1, true, tenancy.Precondition{ID: app.ID})
	if err != nil || got.Generation != app.Generation {
		t.Errorf("a dry run: %v, generation %d", err, got.Generation)
	}
}

// TestWarnings checks that a dry run and a change return the warnings of the configuration.
func TestWarnings(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	want := []tenancy.Warning{{Path: "warn", Line: 1, Column: 1, Message: "cold"}}
	draft := tenancy.Draft{Name: "acme", Config: []byte(`{"warn": "cold"}`)}
	for _, dryRun := range []bool{true, false} {
		app, err := s.CreateApp(t.Context(), tenancytest.Actor, draft, dryRun)
		if err != nil || !slices.Equal(app.Config.Warnings, want) {
			t.Errorf("created, dry run %v: %v, %v", dryRun, app.Config.Warnings, err)
		}
	}
	for _, dryRun := range []bool{true, false} {
		app, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: draft.Config}, dryRun)
		if err != nil || !slices.Equal(app.Config.Warnings, want) {
			t.Errorf("changed, dry run %v: %v, %v", dryRun, app.Config.Warnings, err)
		}
	}
}

// TestDroppedDocumentStores checks that a change and a restore warn of the documents of the stores that leave the configuration,
// in a dry run as well, that the audit trail has their numbers, and that documents are not counted for any other change.
func TestDroppedDocumentStores(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		counted := 0
		o := tenancytest.NewOptions()
		o.CountDocuments = func(context.Context, db.ID) (map[string]int, error) {
			counted++
			return map[string]int{"empty": 0, "guide": 1, "left before": 4, "manual": 2}, nil
		}
		s := tenancy.New(d, tenancytest.NewKeyring(t, tenancytest.MasterKey), tenancytest.NewBus(), o)
		const first = `{"document_stores": {"empty": {}, "guide": {}, "manual": {}, "new": {}}}`
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(first)})
		put := func(config string) func(dryRun bool) (tenancy.App, error) {
			return func(dryRun bool) (tenancy.App, error) {
				return s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(config)}, dryRun)
			}
		}
		restore := func(n int64) func(dryRun bool) (tenancy.App, error) {
			return func(dryRun bool) (tenancy.App, error) {
				return s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", n, dryRun, tenancy.Precondition{ID: app.ID})
			}
		}
		cold := []tenancy.Warning{{Path: "warn", Line: 1, Column: 1, Message: "cold"}}
		guide := tenancy.Warning{Path: "document_stores.guide", Message: "the store leaves the configuration: its 1 document is deleted"}
		manual := tenancy.Warning{Path: "document_stores.manual", Message: "the store leaves the configuration: its 2 documents are deleted"}
		for _, step := range []struct {
			name    string
			do      func(dryRun bool) (tenancy.App, error)
			want    []tenancy.Warning
			dropped any // of the audit entry
			counted int // calls of CountDocuments
		}{
			{"the same stores", put(`{"document_stores": {"manual": {}, "guide": {}, "empty": {"embedder": "words"}, "new": {}}}`), nil, nil, 0},
			{"fewer stores", put(`{"warn": "cold", "document_stores": {"manual": {}}}`),
				[]tenancy.Warning{cold[0], guide}, map[string]any{"guide": json.Number("1")}, 2},
			{"the same text", put(`{"warn": "cold", "document_stores": {"manual": {}}}`), cold, nil, 0},
			{"more stores", restore(1), nil, nil, 0},
			{"no stores", put(`{}`), []tenancy.Warning{guide, manual}, map[string]any{"guide": json.Number("1"), "manual": json.Number("2")}, 2},
			{"again", restore(3), cold, nil, 0},
			{"an earlier revision", restore(5), []tenancy.Warning{manual}, map[string]any{"manual": json.Number("2")}, 2},
		} {
			counted = 0
			for _, dryRun := range []bool{true, false} {
				app, err := step.do(dryRun)
				if diff := cmp.Diff(step.want, app.Config.Warnings, cmpopts.EquateEmpty()); err != nil || diff != "" {
					t.Errorf("%s, dry run %v: %v (-want +got):\n%s", step.name, dryRun, err, diff)
				}
			}
			if counted != step.counted {
				t.Errorf("%s: documents were counted %d times, want %d", step.name, counted, step.counted)
			}
			entries, _, err := s.Trail.List(t.Context(), audit.Query{Filter: audit.Filter{App: "acme"}, Size: 1})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(step.dropped, entries[0].Detail["dropped_documents"]); diff != "" {
				t.Errorf("%s: the audit entry (-want +got):\n%s", step.name, diff)
			}
		}
	})
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		for _, step := range []struct {
			do   func() (tenancy.App, error)
			want tenancy.Status
		}{
			{func() (tenancy.App, error) { return s.SuspendApp(t.Context(), tenancytest.Actor, "acme", "unpaid") }, tenancy.Suspended},
			{func() (tenancy.App, error) { return s.SuspendApp(t.Context(), tenancytest.Actor, "acme", "") }, tenancy.Suspended},
			{func() (tenancy.App, error) { return s.ResumeApp(t.Context(), tenancytest.Actor, "acme", "") }, tenancy.Active},
		} {
			app, err := step.do()
			if err != nil || app.Status != step.want {
				t.Errorf("got %s, %v, want %s", app.Status, err, step.want)
			}
			got, err := s.LoadApp(t.Context(), "acme")
			if err != nil || got.Status != step.want {
				t.Errorf("stored %s, %v, want %s", got.Status, err, step.want)
			}
		}
		_, err := s.SuspendApp(t.Context(), tenancytest.Actor, "nobody", "")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
	})
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`), Secrets: map[string]string{"S": "v"}})
		for _, config := range []string{`{"n":2,"needs":["S"]}`, `{"n":3}`} {
			if _, err := s.UpdateApp(t.Context(), audit.Actor{Name: "ana"}, "acme", tenancy.AppChange{Config: []byte(config)}, false); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.Revisions.Restore(t.Context(), audit.Actor{Name: "bob"}, "acme", 1, false, tenancy.Precondition{}); err != nil || got.Revision != 4 || string(got.Config.JSON) != `{"n":1}` {
			t.Fatalf("restored to revision %d with %s, %v", got.Revision, got.Config.JSON, err)
		}
		got, err := s.Revisions.List(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		want := []tenancy.Revision{{Number: 4, Actor: "bob", Current: true}, {Number: 3, Actor: "ana"}, {Number: 2, Actor: "ana"}, {Number: 1, Actor: tenancytest.Actor.Name}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(tenancy.Revision{}, "CreatedAt")); diff != "" {
			t.Errorf("revisions (-want +got):\n%s", diff)
		}
		for _, n := range []int64{-1, 0, 5} {
			_, err = s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", n, false, tenancy.Precondition{})
			tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		}
		if err := s.Secrets.Delete(t.Context(), tenancytest.Actor, "acme", "S", tenancy.Precondition{}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", 2, false, tenancy.Precondition{})
		tenancytest.WantErr(t, err, tenancytest.ErrCheck)
		snap, err := s.LoadSnapshot(t.Context(), app.ID, 3)
		if err != nil || string(snap.Config) != `{"n":3}` || snap.App.Revision != 3 {
			t.Errorf("snapshot at 3 is %s of %d, %v", snap.Config, snap.App.Revision, err)
		}
		_, err = s.LoadSnapshot(t.Context(), app.ID, 9)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		_, err = s.Revisions.List(t.Context(), "nobody")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
	})
}

// TestRevisionsBounded changes an app more often than maxRevisions.
func TestRevisionsBounded(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
	for i := range 104 {
		if _, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: fmt.Appendf(nil, `{"n":%d}`, i)}, false); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Revisions.List(t.Context(), "acme")
	if err != nil || len(got) != 100 || got[0].Number != 105 || got[99].Number != 6 {
		t.Errorf("%d revisions, %v, want 100 from 105 to 6", len(got), err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"needs":["S"]}`), Secrets: map[string]string{"S": "v1"}})
		for name, value := range map[string]string{"S": "v2", "T": ""} {
			if err := s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", name, value, tenancy.Precondition{}); err != nil {
				t.Fatal(err)
			}
		}
		tenancytest.WantErr(t, s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "bad", tenancy.Precondition{}), tenancytest.ErrCheck)
		tenancytest.WantInvalid(t, s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "a-b", "x", tenancy.Precondition{}), "secrets")
		tenancytest.WantErr(t, s.Secrets.Store(t.Context(), tenancytest.Actor, "nobody", "S", "x", tenancy.Precondition{}), agentsvc.CodeNotFound)
		tenancytest.WantErr(t, s.Secrets.Delete(t.Context(), tenancytest.Actor, "acme", "S", tenancy.Precondition{}), tenancytest.ErrCheck)
		tenancytest.WantErr(t, s.Secrets.Delete(t.Context(), tenancytest.Actor, "acme", "U", tenancy.Precondition{}), agentsvc.CodeNotFound)
		got, err := s.Secrets.List(t.Context(), "acme")
		if err != nil || len(got) != 2 || got[0].Name != "S" || got[1].Name != "T" || !got[0].UpdatedAt.After(got[0].CreatedAt) {
			t.Errorf("secrets %+v, %v", got, err)
		}
		snap, err := s.LoadSnapshot(t.Context(), app.ID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := snap.Secret("S"); v != "v2" || snap.App.Inputs != 3 || snap.App.Revision != 1 {
			t.Errorf("secret %q, inputs %d, revision %d, want v2, 3, 1", v, snap.App.Inputs, snap.App.Revision)
		}
		if err := s.Secrets.Delete(t.Context(), tenancytest.Actor, "acme", "T", tenancy.Precondition{}); err != nil {
			t.Fatal(err)
		}
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app_secret`); n != 1 {
			t.Errorf("%d secrets are stored, want 1", n)
		}
	})
}

// TestSecretCures stores a secret of an app whose configuration does not load: it is accepted, since it may be the
// missing one.
func TestSecretCures(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	unchecked := tenancy.New(d, tenancytest.NewKeyring(t, tenancytest.MasterKey), tenancytest.NewBus(), tenancy.Options{})
	tenancytest.CreateApp(t, unchecked, tenancy.Draft{Name: "acme", Config: []byte(`{"needs":["S","T"]}`)})
	s := tenancytest.NewService(t, d)
	for _, name := range []string{"S", "T"} {
		if err := s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", name, "v", tenancy.Precondition{}); err != nil {
			t.Errorf("put %s: %v", name, err)
		}
	}
	tenancytest.WantErr(t, s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "bad", tenancy.Precondition{}), tenancytest.ErrCheck)
}

// TestConcurrentChanges changes one app concurrently: no change is lost.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, other := tenancytest.NewService(t, d), tenancytest.NewService(t, d)
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for i := range 8 {
			wg.Go(func() {
				by := []*tenancy.Service{s, other}[i%2]
				err := by.Secrets.Store(t.Context(), tenancytest.Actor, "acme", fmt.Sprintf("S%d", i), "v", tenancy.Precondition{})
				if err != nil && !errors.Is(err, tenancy.ErrConflict) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				}
			})
		}
		wg.Wait()
		got, err := s.Secrets.List(t.Context(), "acme")
		app, _ := s.LoadApp(t.Context(), "acme")
		if err != nil || won == 0 || len(got) != won || app.Generation != int64(1+won) {
			t.Errorf("%d secrets and generation %d after %d changes, %v", len(got), app.Generation, won, err)
		}
	})
}

// TestConcurrentCreates creates apps with one name concurrently: exactly one succeeds.
func TestConcurrentCreates(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		services := []*tenancy.Service{tenancytest.NewService(t, d), tenancytest.NewService(t, d)}
		errs := make([]error, 16)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = services[i%2].CreateApp(t.Context(), tenancytest.Actor, tenancy.Draft{Name: "acme", Config: []byte(`{}`)}, false)
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				tenancytest.WantErr(t, err, agentsvc.CodeExists)
			}
		}
		if won != 1 {
			t.Errorf("%d of %d creates won, want 1", won, len(errs))
		}
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM app_revision`); n != 1 {
			t.Errorf("%d revisions are stored, want 1", n)
		}
	})
}

func TestDefault(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		_, err := s.LoadApp(t.Context(), "default")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		s.DefaultApp.Set("House", []byte(`{"key":"k"}`))
		app, err := s.LoadApp(t.Context(), "default")
		if err != nil {
			t.Fatal(err)
		}
		want := tenancy.App{
			ID: tenancy.DefaultID, Name: "default", DisplayName: "House", Status: tenancy.Active, Version: tenancy.Version{Revision: 1, Generation: 1},
			Grants: grant.ParseList([]string{}), Labels: map[string]string{}, Config: masked(`{"key": "********"}`),
		}
		if diff := diffApp(want, app); diff != "" || app.ID != tenancy.DefaultID {
			t.Errorf("default (-want +got):\n%s", diff)
		}
		for name, f := range map[string]func() error{
			"update": func() error {
				_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "default", tenancy.AppChange{}, false)
				return err
			},
			"dry run": func() error {
				_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "default", tenancy.AppChange{}, true)
				return err
			},
			"suspend": func() error { _, err := s.SuspendApp(t.Context(), tenancytest.Actor, "default", ""); return err },
			"resume":  func() error { _, err := s.ResumeApp(t.Context(), tenancytest.Actor, "default", ""); return err },
			"delete":  func() error { return s.DeleteApp(t.Context(), tenancytest.Actor, "default") },
			"restore": func() error {
				_, err := s.Revisions.Restore(t.Context(), tenancytest.Actor, "default", 1, false, tenancy.Precondition{})
				return err
			},
			"secret": func() error {
				return s.Secrets.Store(t.Context(), tenancytest.Actor, "default", "S", "v", tenancy.Precondition{})
			},
		} {
			t.Run(name, func(t *testing.T) { tenancytest.WantErr(t, f(), agentsvc.CodePrecondition) })
		}
		_, err = s.CreateApp(t.Context(), tenancytest.Actor, tenancy.Draft{Name: "default", Config: []byte(`{}`)}, false)
		tenancytest.WantErr(t, err, agentsvc.CodeExists)
		s.DefaultApp.Set("House", []byte(`{}`))
		if again, err := s.LoadApp(t.Context(), "default"); err != nil || again.Revision != 2 || again.Generation <= app.Generation {
			t.Errorf("after the file changed: revision %d, generation %d, %v", again.Revision, again.Generation, err)
		}
	})
}
