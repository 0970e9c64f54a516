package tenancy_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.NewSQLite(t))
	for pattern, ok := range map[string]bool{
		"{app}.agents.example.com": true, "agents-{app}.example.com": true, "{app}.localhost:80": false,
		"agents.example.com": false, "{app}": false, "{app}.{app}.com": false, "https://{app}.example.com": false, "": false,
	} {
		r, err := tenancy.NewRouter(s, []string{pattern})
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
	r := newRouter(t, newService(t, dbtest.NewSQLite(t)))
	tests := []struct {
		host, path string
		want       tenancy.Address
	}{
		{"localhost:8080", "/agents", tenancy.Address{Path: "/agents"}},
		{"localhost", "/", tenancy.Address{Path: "/"}},
		{"localhost", "/apps", tenancy.Address{Path: "/apps"}},
		{"localhost", "/appsx/y", tenancy.Address{Path: "/appsx/y"}},
		{"localhost", "/apps/acme", tenancy.Address{App: "acme", Prefix: "/apps/acme", Path: "/"}},
		{"localhost", "/apps/acme/agents/a", tenancy.Address{App: "acme", Prefix: "/apps/acme", Path: "/agents/a"}},
		{"localhost", "/apps/acme/apps/b", tenancy.Address{App: "acme", Prefix: "/apps/acme", Path: "/apps/b"}},
		{"acme.agents.example.com", "/agents", tenancy.Address{App: "acme", Host: "acme.agents.example.com", Path: "/agents"}},
		{"ACME.Agents.Example.com.:443", "/agents", tenancy.Address{App: "acme", Host: "acme.agents.example.com", Path: "/agents"}},
		{"a.b.agents.example.com", "/agents", tenancy.Address{Path: "/agents"}},
		{"agents.example.com", "/agents", tenancy.Address{Path: "/agents"}},
		{".agents.example.com", "/agents", tenancy.Address{Path: "/agents"}},
		{"evil.com", "/agents", tenancy.Address{Path: "/agents"}},
		{"[::1]:80", "/agents", tenancy.Address{Path: "/agents"}},
		{"acme.agents.example.com", "/apps/acme/x", tenancy.Address{App: "acme", Prefix: "/apps/acme", Host: "acme.agents.example.com", Path: "/x"}},
	}
	for _, tt := range tests {
		got := r.ParseAddress(tt.host, tt.path)
		if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(tenancy.Address{})); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.host, tt.path, diff)
		}
	}
}

func newRouter(t *testing.T, s *tenancy.Service) *tenancy.Router {
	t.Helper()
	r, err := tenancy.NewRouter(s, []string{"{app}.agents.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestAccess sends requests through the complete check: address, app, record.
func TestAccess(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.NewSQLite(t))
	s.SetDefaultApp("", []byte(`{}`))
	r := newRouter(t, s)
	live := newTestCache(t, s, nil, tenancy.RuntimeCacheOptions{})
	acme, globex, suspended := createApp(t, s, tenancy.Draft{Name: "acme"}), createApp(t, s, tenancy.Draft{Name: "globex"}), createApp(t, s, tenancy.Draft{Name: "asleep"})
	now := time.Now() // not after the revocation
	if _, err := s.SuspendApp(t.Context(), actor, "asleep", ""); err != nil {
		t.Fatal(err)
	}
	if err := s.RevokeTokens(t.Context(), actor, "globex", "bob"); err != nil {
		t.Fatal(err)
	}
	token := func(id db.ID) tenancy.AccessRequest {
		return tenancy.AccessRequest{Credential: tenancy.TokenCredential, AppID: id, Subject: "ana", IssuedAt: now}
	}
	named := func(name string) tenancy.AccessRequest {
		return tenancy.AccessRequest{Credential: tenancy.TokenCredential, AppName: name, Subject: "ana", IssuedAt: now}
	}
	with := func(v tenancy.AccessRequest, f func(v *tenancy.AccessRequest)) tenancy.AccessRequest { f(&v); return v }
	probe := tenancy.AccessRequest{Discovery: true}
	bob := with(token(globex.ID), func(v *tenancy.AccessRequest) { v.Subject = "bob" })

	tests := []struct {
		name       string
		host, path string
		visit      tenancy.AccessRequest
		want       db.ID // if err is nil
		err        error
	}{
		{"token, no address", "", "/agents", token(acme.ID), acme.ID, nil},
		{"token by name", "", "/agents", named("acme"), acme.ID, nil},
		{"token without an app", "", "/agents", tenancy.AccessRequest{Credential: tenancy.TokenCredential, IssuedAt: now}, tenancy.DefaultID, nil},
		{"token, its path", "", "/apps/acme/agents", token(acme.ID), acme.ID, nil},
		{"token, its host", "acme.agents.example.com", "/agents", token(acme.ID), acme.ID, nil},
		{"token, both", "acme.agents.example.com", "/apps/acme/agents", token(acme.ID), acme.ID, nil},
		{"token, another path", "", "/apps/globex/agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token by name, another path", "", "/apps/globex/agents", named("acme"), "", tenancy.ErrNotFound},
		{"token, another host", "globex.agents.example.com", "/agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, default's path", "", "/apps/default/agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token of default, another path", "", "/apps/acme/agents", tenancy.AccessRequest{Credential: tenancy.TokenCredential, IssuedAt: now}, "", tenancy.ErrNotFound},
		{"token, path and host differ", "globex.agents.example.com", "/apps/acme/agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, unknown path", "", "/apps/nobody/agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, invalid path", "", "/apps/A::b/agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, empty path", "", "/apps//agents", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, admin below an app", "", "/apps/acme/admin/apps", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, metrics below an app", "", "/apps/acme/metrics", token(acme.ID), "", tenancy.ErrNotFound},
		{"token, metrics at a host", "acme.agents.example.com", "/metrics", token(acme.ID), "", tenancy.ErrNotFound},
		{"token of an app that is gone", "", "/agents", token("0190-gone"), "", tenancy.ErrUnauthenticated},
		{"token of an app that is gone, by name", "", "/agents", named("nobody"), "", tenancy.ErrUnauthenticated},
		{"token of an app that is gone, its path", "", "/apps/nobody/agents", named("nobody"), "", tenancy.ErrUnauthenticated},
		{"token older than the app", "", "/agents", with(token(acme.ID), func(v *tenancy.AccessRequest) { v.IssuedAt = now.Add(-time.Hour) }), "", tenancy.ErrUnauthenticated},
		{"token that was revoked", "", "/agents", bob, "", tenancy.ErrUnauthenticated},
		{"token that was revoked, another path", "", "/apps/acme/agents", bob, "", tenancy.ErrUnauthenticated},
		{"token, suspended", "", "/agents", token(suspended.ID), "", tenancy.ErrSuspended},
		{"token, suspended, discovery", "", "/agents", with(token(suspended.ID), func(v *tenancy.AccessRequest) { v.Discovery = true }), "", tenancy.ErrSuspended},
		{"token, suspended, another path", "", "/apps/acme/agents", token(suspended.ID), "", tenancy.ErrNotFound},
		{"key", "", "/agents", tenancy.AccessRequest{Credential: tenancy.KeyCredential, AppID: acme.ID}, acme.ID, nil},
		{"key, another path", "", "/apps/globex/agents", tenancy.AccessRequest{Credential: tenancy.KeyCredential, AppID: acme.ID}, "", tenancy.ErrNotFound},
		{"bad credential", "", "/agents", tenancy.AccessRequest{Credential: tenancy.InvalidCredential, AllowAnonymous: true, Discovery: true}, "", tenancy.ErrUnauthenticated},
		{"bad credential, unknown app", "", "/apps/nobody/agents", tenancy.AccessRequest{Credential: tenancy.InvalidCredential, Discovery: true}, "", tenancy.ErrUnauthenticated},
		{"operator", "", "/agents", tenancy.AccessRequest{Credential: tenancy.OperatorCredential}, "", tenancy.ErrOperator},
		{"operator, an app", "", "/apps/acme/agents", tenancy.AccessRequest{Credential: tenancy.OperatorCredential, Discovery: true}, "", tenancy.ErrOperator},
		{"nobody", "", "/agents", tenancy.AccessRequest{}, "", tenancy.ErrUnauthenticated},
		{"nobody, an app", "", "/apps/acme/agents", tenancy.AccessRequest{}, "", tenancy.ErrUnauthenticated},
		{"nobody, unknown app", "", "/apps/nobody/agents", tenancy.AccessRequest{}, "", tenancy.ErrUnauthenticated},
		{"nobody, suspended app", "", "/apps/asleep/agents", tenancy.AccessRequest{}, "", tenancy.ErrUnauthenticated},
		{"nobody, default open", "", "/agents", tenancy.AccessRequest{AllowAnonymous: true}, tenancy.DefaultID, nil},
		{"nobody, default open, its path", "", "/apps/default/agents", tenancy.AccessRequest{AllowAnonymous: true}, tenancy.DefaultID, nil},
		{"nobody, default open, another app", "", "/apps/acme/agents", tenancy.AccessRequest{AllowAnonymous: true}, "", tenancy.ErrUnauthenticated},
		{"look around", "", "/agents", probe, tenancy.DefaultID, nil},
		{"look around an app", "", "/apps/acme/agents", probe, acme.ID, nil},
		{"look around an app's host", "acme.agents.example.com", "/agents", probe, acme.ID, nil},
		{"look around, unknown app", "", "/apps/nobody/agents", probe, "", tenancy.ErrNotFound},
		{"look around, invalid name", "", "/apps/A/agents", probe, "", tenancy.ErrNotFound},
		{"look around, suspended app", "", "/apps/asleep/agents", probe, "", tenancy.ErrNotFound},
		{"look around, path and host differ", "acme.agents.example.com", "/apps/globex/agents", probe, "", tenancy.ErrNotFound},
		{"look around, admin", "", "/apps/acme/admin", probe, "", tenancy.ErrNotFound},
	}
	texts := map[string]string{}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := tt.visit
			v.Address = r.ParseAddress(tt.host, tt.path)
			id, err := r.FindApp(t.Context(), &v)
			if err == nil {
				_, app, release, aerr := live.Acquire(t.Context(), id)
				defer release()
				if err = v.CheckApp(app, aerr); err == nil && app.ID != id {
					t.Errorf("routed to %s, got %s", id, app.ID)
				}
			}
			wantErr(t, err, tt.err)
			if err == nil && id != tt.want {
				t.Errorf("got app %s, want %s", id, tt.want)
			}
			if errors.Is(err, tenancy.ErrNotFound) {
				texts[err.Error()] = tt.name
			}
		})
	}
	if len(texts) != 1 {
		t.Errorf("not found has several texts, which reveal the difference: %v", texts)
	}
}

func TestAccessWithoutDefaultApp(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.NewSQLite(t))
	r := newRouter(t, s)
	for name, tt := range map[string]struct {
		visit tenancy.AccessRequest
		want  error
	}{
		"look around": {tenancy.AccessRequest{Discovery: true}, tenancy.ErrNotFound},
		"open":        {tenancy.AccessRequest{AllowAnonymous: true}, tenancy.ErrNotFound},
		"closed":      {tenancy.AccessRequest{}, tenancy.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			tt.visit.Address = r.ParseAddress("", "/agents")
			_, err := r.FindApp(t.Context(), &tt.visit)
			wantErr(t, err, tt.want)
		})
	}
}

// TestNameChanges takes and frees a name; the router must follow at once.
func TestNameChanges(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.NewSQLite(t))
	r := newRouter(t, s)
	resolve := func() (db.ID, error) {
		v := tenancy.AccessRequest{Discovery: true, Address: r.ParseAddress("", "/apps/acme/agents")}
		return r.FindApp(t.Context(), &v)
	}
	_, err := resolve()
	wantErr(t, err, tenancy.ErrNotFound)
	first := createApp(t, s, tenancy.Draft{Name: "acme"})
	if id, err := resolve(); err != nil || id != first.ID {
		t.Fatalf("after create: %s, %v, want %s", id, err, first.ID)
	}
	if err := s.DeleteApp(t.Context(), actor, "acme"); err != nil {
		t.Fatal(err)
	}
	_, err = resolve()
	wantErr(t, err, tenancy.ErrNotFound)
	second := createApp(t, s, tenancy.Draft{Name: "acme"})
	if id, err := resolve(); err != nil || id != second.ID || id == first.ID {
		t.Errorf("after another create: %s, %v, want %s, not %s", id, err, second.ID, first.ID)
	}
}
