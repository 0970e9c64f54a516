package router_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/router"
	"stoa/tenancy/runtimecache"
	"stoa/tenancy/tenancytest"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	for pattern, ok := range map[string]bool{
		"{app}.agents.example.com": true, "agents-{app}.example.com": true, "{app}.localhost:80": false,
		"agents.example.com": false, "{app}": false, "{app}.{app}.com": false, "https://{app}.example.com": false, "": false,
	} {
		r, err := router.New(s, []string{pattern})
		if (err == nil) != ok {
			t.Errorf("pattern %q: error %v, want ok %v", pattern, err, ok)
		}
		if r != nil {
			r.Close()
		}
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	r := newRouter(t, tenancytest.NewService(t, dbtest.NewSQLite(t)))
	tests := []struct {
		host, path string
		want       router.Address
	}{
		{"localhost:8080", "/agents", router.Address{Path: "/agents"}},
		{"localhost", "/", router.Address{Path: "/"}},
		{"localhost", "/apps", router.Address{Path: "/apps"}},
		{"localhost", "/appsx/y", router.Address{Path: "/appsx/y"}},
		{"localhost", "/apps/acme", router.Address{App: "acme", Prefix: "/apps/acme", Path: "/"}},
		{"localhost", "/apps/acme/agents/a", router.Address{App: "acme", Prefix: "/apps/acme", Path: "/agents/a"}},
		{"localhost", "/apps/acme/apps/b", router.Address{App: "acme", Prefix: "/apps/acme", Path: "/apps/b"}},
		{"acme.agents.example.com", "/agents", router.Address{App: "acme", Host: "acme.agents.example.com", Path: "/agents"}},
		{"ACME.Agents.Example.com.:443", "/agents", router.Address{App: "acme", Host: "acme.agents.example.com", Path: "/agents"}},
		{"a.b.agents.example.com", "/agents", router.Address{Path: "/agents"}},
		{"agents.example.com", "/agents", router.Address{Path: "/agents"}},
		{".agents.example.com", "/agents", router.Address{Path: "/agents"}},
		{"evil.com", "/agents", router.Address{Path: "/agents"}},
		{"[::1]:80", "/agents", router.Address{Path: "/agents"}},
		{"acme.agents.example.com", "/apps/acme/x", router.Address{App: "acme", Prefix: "/apps/acme", Host: "acme.agents.example.com", Path: "/x"}},
	}
	for _, tt := range tests {
		got := r.ParseAddress(tt.host, tt.path)
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(router.Address{})); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.host, tt.path, diff)
		}
	}
}

func newRouter(t *testing.T, s *tenancy.Service) *router.Router {
	t.Helper()
	r, err := router.New(s, []string{"{app}.agents.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// noRuntime is built for each app.
type noRuntime struct{}

func (noRuntime) Close() error { return nil }

// TestAccess sends requests through the complete check: address, app, record.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	s.DefaultApp.Set("", []byte(`{}`))
	r := newRouter(t, s)
	apps := runtimecache.New(s, func(context.Context, *tenancy.Snapshot) (noRuntime, error) { return noRuntime{}, nil },
		runtimecache.Options{Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(apps.Close)
	acme, globex, suspended := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"}), tenancytest.CreateApp(t, s, tenancy.Draft{Name: "globex"}), tenancytest.CreateApp(t, s, tenancy.Draft{Name: "asleep"})
	now := time.Now() // not after the revocation
	if _, err := s.SuspendApp(t.Context(), tenancytest.Actor, "asleep", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, "globex", "bob"); err != nil {
		t.Fatal(err)
	}
	token := func(id db.ID) router.AppRequest {
		return router.AppRequest{Credential: router.TokenCredential, AppID: id, Subject: "ana", IssuedAt: now}
	}
	named := func(name string) router.AppRequest {
		return router.AppRequest{Credential: router.TokenCredential, AppName: name, Subject: "ana", IssuedAt: now}
	}
	with := func(v router.AppRequest, f func(v *router.AppRequest)) router.AppRequest { f(&v); return v }
	probe := router.AppRequest{Discovery: true}
	bob := with(token(globex.ID), func(v *router.AppRequest) { v.Subject = "bob" })

	tests := []struct {
		name       string
		host, path string
		visit      router.AppRequest
		want       db.ID // if err is nil
		err        error
	}{
		{"token, no address", "", "/agents", token(acme.ID), acme.ID, nil},
		{"token by name", "", "/agents", named("acme"), acme.ID, nil},
		{"token without an app", "", "/agents", router.AppRequest{Credential: router.TokenCredential, IssuedAt: now}, tenancy.DefaultID, nil},
		{"token, its path", "", "/apps/acme/agents", token(acme.ID), acme.ID, nil},
		{"token, its host", "acme.agents.example.com", "/agents", token(acme.ID), acme.ID, nil},
		{"token, both", "acme.agents.example.com", "/apps/acme/agents", token(acme.ID), acme.ID, nil},
		{"token, another path", "", "/apps/globex/agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token by name, another path", "", "/apps/globex/agents", named("acme"), "", agentsvc.CodeNotFound},
		{"token, another host", "globex.agents.example.com", "/agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, default's path", "", "/apps/default/agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token of default, another path", "", "/apps/acme/agents", router.AppRequest{Credential: router.TokenCredential, IssuedAt: now}, "", agentsvc.CodeNotFound},
		{"token, path and host differ", "globex.agents.example.com", "/apps/acme/agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, unknown path", "", "/apps/nobody/agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, invalid path", "", "/apps/A::b/agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, empty path", "", "/apps//agents", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, admin below an app", "", "/apps/acme/admin/apps", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, metrics below an app", "", "/apps/acme/metrics", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token, metrics at a host", "acme.agents.example.com", "/metrics", token(acme.ID), "", agentsvc.CodeNotFound},
		{"token of an app that is gone", "", "/agents", token("0190-gone"), "", agentsvc.CodeUnauthenticated},
		{"token of an app that is gone, by name", "", "/agents", named("nobody"), "", agentsvc.CodeUnauthenticated},
		{"token of an app that is gone, its path", "", "/apps/nobody/agents", named("nobody"), "", agentsvc.CodeUnauthenticated},
		{"token older than the app", "", "/agents", with(token(acme.ID), func(v *router.AppRequest) { v.IssuedAt = now.Add(-time.Hour) }), "", agentsvc.CodeUnauthenticated},
		{"token that was revoked", "", "/agents", bob, "", agentsvc.CodeUnauthenticated},
		{"token that was revoked, another path", "", "/apps/acme/agents", bob, "", agentsvc.CodeUnauthenticated},
		{"token, suspended", "", "/agents", token(suspended.ID), "", tenancy.ErrSuspended},
		{"token, suspended, discovery", "", "/agents", with(token(suspended.ID), func(v *router.AppRequest) { v.Discovery = true }), "", tenancy.ErrSuspended},
		{"token, suspended, another path", "", "/apps/acme/agents", token(suspended.ID), "", agentsvc.CodeNotFound},
		{"key", "", "/agents", router.AppRequest{Credential: router.KeyCredential, AppID: acme.ID}, acme.ID, nil},
		{"key, another path", "", "/apps/globex/agents", router.AppRequest{Credential: router.KeyCredential, AppID: acme.ID}, "", agentsvc.CodeNotFound},
		{"bad credential", "", "/agents", router.AppRequest{Credential: router.InvalidCredential, AllowAnonymous: true, Discovery: true}, "", agentsvc.CodeUnauthenticated},
		{"bad credential, unknown app", "", "/apps/nobody/agents", router.AppRequest{Credential: router.InvalidCredential, Discovery: true}, "", agentsvc.CodeUnauthenticated},
		{"operator", "", "/agents", router.AppRequest{Credential: router.OperatorCredential}, "", router.ErrOperator},
		{"operator, an app", "", "/apps/acme/agents", router.AppRequest{Credential: router.OperatorCredential, Discovery: true}, "", router.ErrOperator},
		{"nobody", "", "/agents", router.AppRequest{}, "", agentsvc.CodeUnauthenticated},
		{"nobody, an app", "", "/apps/acme/agents", router.AppRequest{}, "", agentsvc.CodeUnauthenticated},
		{"nobody, unknown app", "", "/apps/nobody/agents", router.AppRequest{}, "", agentsvc.CodeUnauthenticated},
		{"nobody, suspended app", "", "/apps/asleep/agents", router.AppRequest{}, "", agentsvc.CodeUnauthenticated},
		{"nobody, default open", "", "/agents", router.AppRequest{AllowAnonymous: true}, tenancy.DefaultID, nil},
		{"nobody, default open, its path", "", "/apps/default/agents", router.AppRequest{AllowAnonymous: true}, tenancy.DefaultID, nil},
		{"nobody, default open, another app", "", "/apps/acme/agents", router.AppRequest{AllowAnonymous: true}, "", agentsvc.CodeUnauthenticated},
		{"look around", "", "/agents", probe, tenancy.DefaultID, nil},
		{"look around an app", "", "/apps/acme/agents", probe, acme.ID, nil},
		{"look around an app's host", "acme.agents.example.com", "/agents", probe, acme.ID, nil},
		{"look around, unknown app", "", "/apps/nobody/agents", probe, "", agentsvc.CodeNotFound},
		{"look around, invalid name", "", "/apps/A/agents", probe, "", agentsvc.CodeNotFound},
		{"look around, suspended app", "", "/apps/asleep/agents", probe, "", agentsvc.CodeNotFound},
		{"look around, path and host differ", "acme.agents.example.com", "/apps/globex/agents", probe, "", agentsvc.CodeNotFound},
		{"look around, admin", "", "/apps/acme/admin", probe, "", agentsvc.CodeNotFound},
	}
	texts := map[string]string{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.visit
			v.Address = r.ParseAddress(tt.host, tt.path)
			id, err := r.FindApp(t.Context(), &v)
			if err == nil {
				_, app, release, aerr := apps.Acquire(t.Context(), id)
				defer release()
				if err = v.CheckApp(app, aerr); err == nil && app.ID != id {
					t.Errorf("routed to %s, got %s", id, app.ID)
				}
			}
			tenancytest.WantErr(t, err, tt.err)
			if err == nil && id != tt.want {
				t.Errorf("got app %s, want %s", id, tt.want)
			}
			if errors.Is(err, agentsvc.CodeNotFound) {
				texts[err.Error()] = tt.name
			}
		})
	}
	if len(texts) != 1 {
		t.Errorf("not found is said in several ways, which tell: %v", texts)
	}
}

func TestAccessWithoutDefaultApp(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	r := newRouter(t, s)
	for name, tt := range map[string]struct {
		visit router.AppRequest
		want  error
	}{
		"look around": {router.AppRequest{Discovery: true}, agentsvc.CodeNotFound},
		"open":        {router.AppRequest{AllowAnonymous: true}, agentsvc.CodeNotFound},
		"closed":      {router.AppRequest{}, agentsvc.CodeUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			tt.visit.Address = r.ParseAddress("", "/agents")
			_, err := r.FindApp(t.Context(), &tt.visit)
			tenancytest.WantErr(t, err, tt.want)
		})
	}
}

// TestNameChanges takes and frees a name; the router must follow at once.
func TestNameChanges(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	r := newRouter(t, s)
	resolve := func() (db.ID, error) {
		v := router.AppRequest{Discovery: true, Address: r.ParseAddress("", "/apps/acme/agents")}
		return r.FindApp(t.Context(), &v)
	}
	_, err := resolve()
	tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
	first := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
	if id, err := resolve(); err != nil || id != first.ID {
		t.Fatalf("after create: %s, %v, want %s", id, err, first.ID)
	}
	if err := s.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
		t.Fatal(err)
	}
	_, err = resolve()
	tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
	second := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
	if id, err := resolve(); err != nil || id != second.ID || id == first.ID {
		t.Errorf("after another create: %s, %v, want %s, not %s", id, err, second.ID, first.ID)
	}
}
