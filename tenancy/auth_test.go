package tenancy_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/tenancytest"
)

// TestAuth checks that tokens of apps' issuers can be attributed: by issuer and audience, or by name if all apps
// require it.
func TestAuth(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		o := tenancytest.NewOptions()
		o.IsReservedIssuer = func(issuer, audience string) bool { return issuer == "https://house" }
		s := tenancy.New(d, tenancytest.NewKeyring(t, tenancytest.MasterKey), tenancytest.NewBus(), o)
		auth := func(issuer, audience string, byName bool) tenancy.IssuerConfig {
			return tenancy.IssuerConfig{Issuer: issuer, JWKSURL: "https://keys", Audience: audience, RequireTenantID: byName}
		}
		try := func(name string, a tenancy.IssuerConfig) error {
			_, err := s.CreateApp(t.Context(), tenancytest.Actor, tenancy.Draft{Name: name, Config: []byte(`{}`), Auth: a}, false)
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
		tenancytest.WantErr(t, try("house", auth("https://house", "a", false)), agentsvc.CodeExists)
		tenancytest.WantErr(t, try("a", auth("https://x", "a", false)), nil)
		requireNewVersion()
		tenancytest.WantErr(t, try("b", auth("https://x", "a", false)), agentsvc.CodeExists)
		tenancytest.WantErr(t, try("b", auth("https://x", "a", true)), agentsvc.CodeExists)
		tenancytest.WantErr(t, try("b", auth("https://x", "ab", false)), nil)
		requireNewVersion()
		tenancytest.WantErr(t, try("c", auth("https://y", "a", true)), nil)
		tenancytest.WantErr(t, try("d", auth("https://y", "a", true)), nil)
		tenancytest.WantErr(t, try("e", auth("https://y", "a", false)), agentsvc.CodeExists)
		tenancytest.WantErr(t, try("e", auth("https://y_", "a", false)), nil)
		requireNewVersion()
		plain := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "f"})
		taken := auth("https://x", "a", false)
		_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "f", tenancy.AppChange{Auth: &taken}, false)
		tenancytest.WantErr(t, err, agentsvc.CodeExists)
		none := tenancy.IssuerConfig{}
		if _, err = s.UpdateApp(t.Context(), tenancytest.Actor, "a", tenancy.AppChange{Auth: &none}, false); err != nil {
			t.Fatal(err)
		}
		requireNewVersion()
		got, err := s.UpdateApp(t.Context(), tenancytest.Actor, "f", tenancy.AppChange{Auth: &taken}, false)
		if err != nil || got.Auth != taken || got.Inputs != plain.Inputs {
			t.Errorf("%+v, %v: want the issuer and nothing to build", got, err)
		}
		requireNewVersion()
		tenancytest.WantErr(t, s.DeleteApp(t.Context(), tenancytest.Actor, "b"), nil)
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
			tenancytest.WantInvalid(t, try("g", wrong), field)
		}
	})
}

// TestSameIssuerAtOnce registers one issuer for many apps concurrently: exactly one succeeds.
func TestSameIssuerAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := tenancytest.NewService(t, d)
		errs := make(chan error)
		for i := range 8 {
			go func() {
				_, err := s.CreateApp(t.Context(), tenancytest.Actor, tenancy.Draft{Name: fmt.Sprint("app", i), Config: []byte(`{}`),
					Auth: tenancy.IssuerConfig{Issuer: "https://x", JWKSURL: "https://k", Audience: "a"}}, false)
				errs <- err
			}()
		}
		got := 0
		for range 8 {
			if err := <-errs; err == nil {
				got++
			} else {
				tenancytest.WantErr(t, err, agentsvc.CodeExists)
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
