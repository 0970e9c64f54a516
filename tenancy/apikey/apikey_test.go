package apikey_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func createKey(t *testing.T, s *tenancy.Service, app, id string) apikey.Key {
	t.Helper()
	k, _, err := s.CreateAPIKey(t.Context(), actor, app, apikey.Key{ID: id, Name: "n", Hash: []byte("h-" + id), Roles: []string{"caller"}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestAPIKeys manages keys of an app and of the default app, and checks that every change increments the app's
// generation.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		s.DefaultApp.Set("", []byte(`{}`))
		createApp(t, s, tenancy.Draft{Name: "acme"})
		for _, app := range []string{"acme", tenancy.DefaultName} {
			generation := func(id string) int64 {
				t.Helper()
				_, of, err := s.FindAPIKey(t.Context(), id)
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
			createKey(t, s, app, one)
			first := generation(one)
			createKey(t, s, app, two)
			second := generation(one)
			k, _, err := s.RotateAPIKey(t.Context(), actor, app, one, []byte("next"), time.Hour)
			if err != nil || string(k.Hash) != "next" || string(k.Former) != "h-"+one || !k.FormerUntil.After(time.Now()) {
				t.Errorf("rotated to %+v, %v", k, err)
			}
			third := generation(one)
			wantErr(t, s.DeleteAPIKey(t.Context(), actor, app, one), nil)
			fourth := generation(two)
			if got := []int64{first, second, third, fourth}; !slices.IsSorted(got) || len(slices.Compact(got)) != 4 {
				t.Errorf("the generations are %v, want each change to be seen", got)
			}
			wantErr(t, s.DeleteAPIKey(t.Context(), actor, app, one), tenancy.ErrNotFound)
			_, _, err = s.RotateAPIKey(t.Context(), actor, app, one, nil, 0)
			wantErr(t, err, tenancy.ErrNotFound)
			_, _, err = s.FindAPIKey(t.Context(), one)
			wantErr(t, err, tenancy.ErrNotFound)
			if list, err := s.ListAPIKeys(t.Context(), app); err != nil || len(list) != 1 || list[0].ID != two {
				t.Errorf("listed %+v, %v", list, err)
			}
		}
		// A key belongs to one app only, and ids are unique across apps.
		wantErr(t, s.DeleteAPIKey(t.Context(), actor, "acme", "default-2"), tenancy.ErrNotFound)
		if _, _, err := s.CreateAPIKey(t.Context(), actor, "acme", apikey.Key{ID: "default-2"}); err == nil {
			t.Error("two keys have one id")
		}
		wantErr(t, s.DeleteApp(t.Context(), actor, "acme"), nil)
		_, _, err := s.FindAPIKey(t.Context(), "acme-2")
		wantErr(t, err, tenancy.ErrNotFound)
		if n := countRows(t, d.Platform(), `SELECT COUNT(*) FROM api_key`); n != 1 {
			t.Errorf("%d keys are left", n)
		}
		_, _, err = s.CreateAPIKey(t.Context(), actor, "ghost", apikey.Key{ID: "x"})
		wantErr(t, err, tenancy.ErrNotFound)
		wantErr(t, s.DeleteAPIKey(t.Context(), actor, "ghost", "x"), tenancy.ErrNotFound)
	})
}

// TestTooManyAPIKeys creates MaxAPIKeys keys; the next one must be refused.
func TestTooManyAPIKeys(t *testing.T) {
	t.Parallel()
	s := newService(t, dbtest.NewSQLite(t))
	s.DefaultApp.Set("", []byte(`{}`))
	for i := range apikey.MaxKeys {
		createKey(t, s, tenancy.DefaultName, fmt.Sprint(i))
	}
	_, _, err := s.CreateAPIKey(t.Context(), actor, tenancy.DefaultName, apikey.Key{ID: "more", Hash: []byte{1}})
	wantErr(t, err, tenancy.ErrPrecondition)
}

// TestAuth checks that tokens of apps' issuers can be attributed: by issuer and audience, or by name if all apps
// require it.
func TestAuth(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		o := newOptions()
		o.IsReservedIssuer = func(issuer, audience string) bool { return issuer == "https://house" }
		s := tenancy.New(d, newKeyring(t, masterKey), newBus(), o)
		auth := func(issuer, audience string, byName bool) tenancy.IssuerConfig {
			return tenancy.IssuerConfig{Issuer: issuer, JWKSURL: "https://keys", Audience: audience, RequireTenantID: byName}
		}
		try := func(name string, a tenancy.IssuerConfig) error {
			_, err := s.CreateApp(t.Context(), actor, tenancy.Draft{Name: name, Config: []byte(`{}`), Auth: a}, false)
			return err
		}
		version := ""
		requireNewVersion := func() {
			t.Helper()
			next, err := s.Issuers.Version(t.Context())
			if err != nil || next == version {
				t.Errorf("the mark is still %s: %v", next, err)
			}
			version = next
		}
		wantErr(t, try("house", auth("https://house", "a", false)), tenancy.ErrExists)
		wantErr(t, try("a", auth("https://x", "a", false)), nil)
		requireNewVersion()
		wantErr(t, try("b", auth("https://x", "a", false)), tenancy.ErrExists)
		wantErr(t, try("b", auth("https://x", "a", true)), tenancy.ErrExists)
		wantErr(t, try("b", auth("https://x", "ab", false)), nil)
		requireNewVersion()
		wantErr(t, try("c", auth("https://y", "a", true)), nil)
		wantErr(t, try("d", auth("https://y", "a", true)), nil)
		wantErr(t, try("e", auth("https://y", "a", false)), tenancy.ErrExists)
		wantErr(t, try("e", auth("https://y_", "a", false)), nil)
		requireNewVersion()
		plain := createApp(t, s, tenancy.Draft{Name: "f"})
		taken := auth("https://x", "a", false)
		_, err := s.UpdateApp(t.Context(), actor, "f", tenancy.AppChange{Auth: &taken}, false)
		wantErr(t, err, tenancy.ErrExists)
		none := tenancy.IssuerConfig{}
		if _, err = s.UpdateApp(t.Context(), actor, "a", tenancy.AppChange{Auth: &none}, false); err != nil {
			t.Fatal(err)
		}
		requireNewVersion()
		got, err := s.UpdateApp(t.Context(), actor, "f", tenancy.AppChange{Auth: &taken}, false)
		if err != nil || got.Auth != taken || got.Inputs != plain.Inputs {
			t.Errorf("%+v, %v: want the issuer and nothing to build", got, err)
		}
		requireNewVersion()
		wantErr(t, s.DeleteApp(t.Context(), actor, "b"), nil)
		requireNewVersion()
		all, err := s.Issuers.List(t.Context())
		var names []string
		for _, i := range all {
			names = append(names, i.Name)
		}
		slices.Sort(names)
		if want := []string{"c", "d", "e", "f"}; err != nil || !slices.Equal(names, want) {
			t.Errorf("the issuers are of %v, %v, want %v", names, err, want)
		}
		for field, wrong := range map[string]tenancy.IssuerConfig{
			"auth.issuer":           {JWKSURL: "https://k", Audience: "a"},
			"auth.audience":         {JWKSURL: "https://k", Issuer: "i"},
			"auth.jwks_url":         {JWKSURL: "http://k", Issuer: "i", Audience: "a"},
			"auth.refresh_interval": {JWKSURL: "https://k", Issuer: "i", Audience: "a", RefreshInterval: "1s"},
			"auth.client_id":        {JWKSURL: "https://k", Issuer: "i", Audience: "a", ClientID: "a\nb"},
		} {
			wantInvalid(t, try("g", wrong), field)
		}
	})
}

// TestSameIssuerAtOnce registers one issuer for many apps concurrently: exactly one succeeds.
func TestSameIssuerAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		errs := make(chan error)
		for i := range 8 {
			go func() {
				_, err := s.CreateApp(t.Context(), actor, tenancy.Draft{Name: fmt.Sprint("app", i), Config: []byte(`{}`),
					Auth: tenancy.IssuerConfig{Issuer: "https://x", JWKSURL: "https://k", Audience: "a"}}, false)
				errs <- err
			}()
		}
		got := 0
		for range 8 {
			if err := <-errs; err == nil {
				got++
			} else {
				wantErr(t, err, tenancy.ErrExists)
				if bytes.Contains([]byte(err.Error()), []byte("named")) {
					t.Errorf("the name is blamed: %v", err)
				}
			}
		}
		if got != 1 {
			t.Errorf("%d apps have the issuer", got)
		}
	})
}
