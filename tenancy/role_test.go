package tenancy_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

func TestRoles(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		s.DefaultApp.Set("Default", []byte("agents: {}"))
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		for _, app := range []string{"acme", tenancy.DefaultName} {
			ctx := t.Context()
			before, err := s.LoadApp(ctx, app)
			if err != nil {
				t.Fatal(err)
			}
			supportRole := tenancy.Role{Name: "desk", Scopes: []string{"tasks:read"}, Description: "looks"}
			if _, err := s.Roles.Add(ctx, tenancytest.Actor, app, supportRole); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Roles.Add(ctx, tenancytest.Actor, app, supportRole); !errors.Is(err, agentsvc.CodeExists) {
				t.Errorf("a second role of the name: %v", err)
			}
			if _, err := s.Roles.Update(ctx, tenancytest.Actor, app, tenancy.Role{Name: "front"}); !errors.Is(err, agentsvc.CodeNotFound) {
				t.Errorf("a change of no role: %v", err)
			}
			if err := s.Roles.Delete(ctx, tenancytest.Actor, app, "front"); !errors.Is(err, agentsvc.CodeNotFound) {
				t.Errorf("an end of no role: %v", err)
			}
			supportRole.Scopes = []string{"tasks:cancel"}
			if _, err := s.Roles.Update(ctx, tenancytest.Actor, app, supportRole); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Roles.Add(ctx, tenancytest.Actor, app, tenancy.Role{Name: "a", Scopes: []string{}}); err != nil {
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
			if err := s.Roles.Delete(ctx, tenancytest.Actor, app, "desk"); err != nil {
				t.Fatal(err)
			}
			if end, err := s.LoadApp(ctx, app); err != nil || len(end.Roles) != 1 || end.Generation <= after.Generation {
				t.Errorf("in the end: %+v, %v", end.Roles, err)
			}
		}
		if _, err := s.Roles.Add(t.Context(), tenancytest.Actor, "nobody", tenancy.Role{Name: "x"}); !errors.Is(err, agentsvc.CodeNotFound) {
			t.Errorf("a role of no app: %v", err)
		}
	})
}

// TestRolesAtOnce adds roles concurrently through two services: none is lost.
func TestRolesAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		services := []*tenancy.Service{tenancytest.NewService(t, d), tenancytest.NewService(t, d)}
		for _, s := range services {
			s.DefaultApp.Set("Default", []byte("agents: {}"))
		}
		tenancytest.CreateApp(t, services[0], tenancy.Draft{Name: "acme"})
		for _, app := range []string{"acme", tenancy.DefaultName} {
			var all sync.WaitGroup
			for i := range 6 {
				all.Go(func() {
					err := tenancy.ErrConflict
					for errors.Is(err, tenancy.ErrConflict) {
						_, err = services[i%2].Roles.Add(t.Context(), tenancytest.Actor, app, tenancy.Role{Name: fmt.Sprintf("role-%d", i)})
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
		s := tenancytest.NewService(t, d)
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		var bad *agentsvc.Error
		scopes := make([]string, 501)
		if _, err := s.Roles.Add(t.Context(), tenancytest.Actor, "acme", tenancy.Role{Name: "wide", Scopes: scopes}); !errors.As(err, &bad) || bad.Field != "scopes" {
			t.Errorf("501 scopes: %v", err)
		}
		for i := range 50 {
			if _, err := s.Roles.Add(t.Context(), tenancytest.Actor, "acme", tenancy.Role{Name: fmt.Sprintf("r%d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Roles.Add(t.Context(), tenancytest.Actor, "acme", tenancy.Role{Name: "more"}); !errors.As(err, &bad) || bad.Field != "name" {
			t.Errorf("51 roles: %v", err)
		}
	})
}
