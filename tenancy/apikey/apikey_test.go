package apikey_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

func createKey(t *testing.T, s *apikey.Store, app, id string) apikey.Key {
	t.Helper()
	k, _, err := s.Create(t.Context(), tenancytest.Actor, app, apikey.Key{ID: id, Name: "n", Hash: []byte("h-" + id), Roles: []string{"caller"}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestStore manages keys of an app and of the default app, and checks that every change increments the app's
// generation.
func TestStore(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		keys := apikey.NewStore(d, s)
		s.DefaultApp.Set("", []byte(`{}`))
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		for _, app := range []string{"acme", tenancy.DefaultName} {
			generation := func(id string) int64 {
				t.Helper()
				_, of, err := keys.Find(t.Context(), id)
				if err != nil || of.Name != app {
					t.Fatalf("the key %s is of %s: %v", id, of.Name, err)
				}
				got, err := s.LoadApp(t.Context(), app)
				if err != nil || got.Generation != of.Generation || got.ID != of.App {
					t.Errorf("the app is at %d, its key at %d: %v", got.Generation, of.Generation, err)
				}
				return of.Generation
			}
			one, two := app+"-1", app+"-2"
			createKey(t, keys, app, one)
			first := generation(one)
			createKey(t, keys, app, two)
			second := generation(one)
			k, _, err := keys.Rotate(t.Context(), tenancytest.Actor, app, one, []byte("next"), time.Hour)
			if err != nil || string(k.Hash) != "next" || string(k.Former) != "h-"+one || !k.FormerUntil.After(time.Now()) {
				t.Errorf("rotated to %+v, %v", k, err)
			}
			third := generation(one)
			tenancytest.WantErr(t, keys.Delete(t.Context(), tenancytest.Actor, app, one), nil)
			fourth := generation(two)
			if got := []int64{first, second, third, fourth}; !slices.IsSorted(got) || len(slices.Compact(got)) != 4 {
				t.Errorf("the generations are %v, want each change to be seen", got)
			}
			tenancytest.WantErr(t, keys.Delete(t.Context(), tenancytest.Actor, app, one), agentsvc.CodeNotFound)
			_, _, err = keys.Rotate(t.Context(), tenancytest.Actor, app, one, nil, 0)
			tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
			_, _, err = keys.Find(t.Context(), one)
			tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
			if list, err := keys.List(t.Context(), app); err != nil || len(list) != 1 || list[0].ID != two {
				t.Errorf("listed %+v, %v", list, err)
			}
		}
		// A key belongs to one app only, and ids are unique across apps.
		tenancytest.WantErr(t, keys.Delete(t.Context(), tenancytest.Actor, "acme", "default-2"), agentsvc.CodeNotFound)
		if _, _, err := keys.Create(t.Context(), tenancytest.Actor, "acme", apikey.Key{ID: "default-2"}); err == nil {
			t.Error("two keys have one id")
		}
		tenancytest.WantErr(t, s.DeleteApp(t.Context(), tenancytest.Actor, "acme"), nil)
		_, _, err := keys.Find(t.Context(), "acme-2")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		if n := tenancytest.CountRows(t, d.Platform(), `SELECT COUNT(*) FROM api_key`); n != 1 {
			t.Errorf("%d keys are left", n)
		}
		_, _, err = keys.Create(t.Context(), tenancytest.Actor, "ghost", apikey.Key{ID: "x"})
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		tenancytest.WantErr(t, keys.Delete(t.Context(), tenancytest.Actor, "ghost", "x"), agentsvc.CodeNotFound)
	})
}

// TestTooManyKeys creates MaxKeys keys; the next one must be refused.
func TestTooManyKeys(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s := tenancytest.NewService(t, d)
	keys := apikey.NewStore(d, s)
	s.DefaultApp.Set("", []byte(`{}`))
	for i := range apikey.MaxKeys {
		createKey(t, keys, tenancy.DefaultName, fmt.Sprint(i))
	}
	_, _, err := keys.Create(t.Context(), tenancytest.Actor, tenancy.DefaultName, apikey.Key{ID: "more", Hash: []byte{1}})
	tenancytest.WantErr(t, err, agentsvc.CodePrecondition)
}

// TestIsolation reads the keys of one app through the handle of another, of no tenant, and of the app itself.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t) // SQLite has no row-level security
	s := tenancytest.NewService(t, d)
	var apps []tenancy.App
	for _, name := range []string{"alice", "bob"} {
		apps = append(apps, tenancytest.CreateApp(t, s, tenancy.Draft{Name: name}))
		createKey(t, apikey.NewStore(d, s), name, name)
	}
	alice, bob, none := d.Tenant(apps[0].ID), d.Tenant(apps[1].ID), d.Tenant("")
	const of, all = `SELECT COUNT(*) FROM api_key WHERE tenant = $1`, `SELECT COUNT(*) FROM api_key`
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
	b.Exec(&n, `DELETE FROM api_key WHERE tenant = $1`, string(apps[0].ID))
	if err := bob.Do(t.Context(), &b); err != nil || n != 0 {
		t.Errorf("Bob deleted %d rows of Alice's, %v", n, err)
	}
}
