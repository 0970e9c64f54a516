package tenancy_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		s.SetDefaultApp("Default", []byte("agents: {}"))
		createApp(t, s, tenancy.Draft{Name: "acme"})
		for _, app := range []string{"acme", tenancy.DefaultName} {
			ctx := t.Context()
			before, err := s.LoadApp(ctx, app)
			if err != nil {
				t.Fatal(err)
			}
			supportRole := tenancy.Role{Name: "desk", Scopes: []string{"tasks:read"}, Description: "looks"}
			if _, err := s.AddRole(ctx, actor, app, supportRole); err != nil {
				t.Fatal(err)
			}
			if _, err := s.AddRole(ctx, actor, app, supportRole); !errors.Is(err, tenancy.ErrExists) {
				t.Errorf("a second role of the name: %v", err)
			}
			if _, err := s.UpdateRole(ctx, actor, app, tenancy.Role{Name: "front"}); !errors.Is(err, tenancy.ErrNotFound) {
				t.Errorf("a change of no role: %v", err)
			}
			if err := s.DeleteRole(ctx, actor, app, "front"); !errors.Is(err, tenancy.ErrNotFound) {
				t.Errorf("an end of no role: %v", err)
			}
			supportRole.Scopes = []string{"tasks:cancel"}
			if _, err := s.UpdateRole(ctx, actor, app, supportRole); err != nil {
				t.Fatal(err)
			}
			if _, err := s.AddRole(ctx, actor, app, tenancy.Role{Name: "a", Scopes: []string{}}); err != nil {
				t.Fatal(err)
			}
			after, err := s.LoadApp(ctx, app)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]tenancy.Role{{Name: "a", Scopes: []string{}}, supportRole}, after.Roles); diff != "" {
				t.Errorf("roles of %s: %s", app, diff)
			}
			if after.Generation <= before.Generation || after.RolesVersion != 3 {
				t.Errorf("%s went from generation %d to %d, its roles to %d", app, before.Generation, after.Generation, after.RolesVersion)
			}
			if after.Inputs != before.Inputs || after.Revision != before.Revision {
				t.Errorf("a change of roles rebuilds %s", app)
			}
			if err := s.DeleteRole(ctx, actor, app, "desk"); err != nil {
				t.Fatal(err)
			}
			if end, err := s.LoadApp(ctx, app); err != nil || len(end.Roles) != 1 || end.Generation <= after.Generation {
				t.Errorf("in the end: %+v, %v", end.Roles, err)
			}
		}
		if _, err := s.AddRole(t.Context(), actor, "nobody", tenancy.Role{Name: "x"}); !errors.Is(err, tenancy.ErrNotFound) {
			t.Errorf("a role of no app: %v", err)
		}
	})
}

// TestRolesAtOnce adds roles concurrently through two services: none is lost.
func TestRolesAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		services := []*tenancy.Service{newService(t, d), newService(t, d)}
		for _, s := range services {
			s.SetDefaultApp("Default", []byte("agents: {}"))
		}
		createApp(t, services[0], tenancy.Draft{Name: "acme"})
		for _, app := range []string{"acme", tenancy.DefaultName} {
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					err := tenancy.ErrConflict
					for errors.Is(err, tenancy.ErrConflict) {
						_, err = services[i%2].AddRole(t.Context(), actor, app, tenancy.Role{Name: fmt.Sprintf("role-%d", i)})
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if got, err := services[0].LoadApp(t.Context(), app); err != nil || len(got.Roles) != 6 {
				t.Errorf("%s has %d roles, want 6 (%v)", app, len(got.Roles), err)
			}
		}
	})
}

func TestRolesAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		createApp(t, s, tenancy.Draft{Name: "acme"})
		var bad *tenancy.InvalidError
		scopes := make([]string, 501)
		if _, err := s.AddRole(t.Context(), actor, "acme", tenancy.Role{Name: "wide", Scopes: scopes}); !errors.As(err, &bad) || bad.Field != "scopes" {
			t.Errorf("501 scopes: %v", err)
		}
		for i := range 50 {
			if _, err := s.AddRole(t.Context(), actor, "acme", tenancy.Role{Name: fmt.Sprintf("r%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.AddRole(t.Context(), actor, "acme", tenancy.Role{Name: "more"}); !errors.As(err, &bad) || bad.Field != "name" {
			t.Errorf("51 roles: %v", err)
		}
	})
}

// TestRolesReachTheRecord changes an app's roles: later callers of Acquire get them, without a new build.
func TestRolesReachTheRecord(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		here, elsewhere := newService(t, d), newService(t, d) // without signals between them
		for _, s := range []*tenancy.Service{here, elsewhere} {
			s.SetDefaultApp("Default", []byte("agents: {}"))
		}
		acme := createApp(t, here, tenancy.Draft{Name: "acme"})
		b := &runtimeBuilder{}
		l := newTestCache(t, here, b, tenancy.RuntimeCacheOptions{})
		roles := func(id db.ID) int {
			_, app, release := acquireRuntime(t, l, id)
			defer release()
			return len(app.Roles)
		}
		for id, name := range map[db.ID]string{acme.ID: "acme", tenancy.DefaultID: tenancy.DefaultName} {
			if n := roles(id); n != 0 {
				t.Fatalf("%s begins with %d roles", name, n)
			}
			if _, err := here.AddRole(t.Context(), actor, name, tenancy.Role{Name: "one"}); err != nil {
				t.Fatal(err)
			}
			if n := roles(id); n != 1 {
				t.Errorf("%s has %d roles right after the change, want 1", name, n)
			}
			if err := elsewhere.DeleteRole(t.Context(), actor, name, "one"); err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); roles(id) != 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > 20*time.Second {
					t.Fatalf("%s still has a role that another process has removed", name)
				}
			}
		}
		if n := b.countBuilt(); n != 2 {
			t.Errorf("%d builds, want 2: one of each app", n)
		}
	})
}
