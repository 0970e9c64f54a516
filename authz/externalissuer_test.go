package authz

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/authz/jwks"
	"stoa/authz/jwks/jwkstest"
	"stoa/tenancy/db"
)

// serveRemoteKeys returns the keys of an issuer that answers 200 with body.
func serveRemoteKeys(t *testing.T, body string) (*jwks.RemoteSet, *jwkstest.Server) {
	t.Helper()
	s := jwkstest.NewServer(http.StatusOK, body)
	r := jwks.NewRemoteSet("https://issuer.example/jwks", jwks.Options{
		HTTP: &http.Client{Transport: s}, Refresh: 15 * time.Minute, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(r.Close)
	return r, s
}

// newExternalIssuer returns an OpenID provider that publishes all keys of the test tokens, bad ones included.
func newExternalIssuer(t *testing.T, app db.ID, name string) TrustedIssuer {
	t.Helper()
	set := newTestIssuer()
	var all []jose.JSONWebKey
	for kid, key := range set.Keys.(fixedKeys) {
		key.KeyID = kid
		all = append(all, key)
	}
	keys, _ := serveRemoteKeys(t, jwkstest.EncodeSet(all...))
	return TrustedIssuer{Issuer: set.Issuer, Audience: set.Audience, Keys: keys, App: app, AppName: name}
}

// TestForgeriesExternalIssuer presents the forged tokens to an external issuer: one of the server, and one of an app.
func TestForgeriesExternalIssuer(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := newValidToken(now)
	server, appOwned := NewVerifier(newExternalIssuer(t, "", "")), NewVerifier(newExternalIssuer(t, "id-of-acme", "acme"))
	for _, v := range []*Verifier{server, appOwned} {
		if _, err := v.VerifyToken(t.Context(), good.encodeToken()); err != nil {
			t.Fatalf("the good token: %v", RefusalReason(err))
		}
	}
	tried := 0
	for _, tt := range listForgeries(t, now) {
		if tt.builtIn {
			continue
		}
		tried++
		for name, v := range map[string]*Verifier{"the server's": server, "an app's": appOwned} {
			if p, err := v.VerifyToken(t.Context(), tt.token); !errors.Is(err, agentsvc.CodeUnauthenticated) {
				t.Errorf("%s issuer, %s: %+v, %v", name, tt.name, p, err)
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d forgeries", tried)
	}
	for name, token := range map[string]string{
		"another app's name":          good.withClaims(jsonObject{"tenant_id": "globex"}).encodeToken(),
		"another app's name, its id":  good.withClaims(jsonObject{"tenant_id": "globex", "app_id": "id-of-acme"}).encodeToken(),
		"the default app's name":      good.withClaims(jsonObject{"tenant_id": "default"}).encodeToken(),
		"the name in capitals":        good.withClaims(jsonObject{"tenant_id": "ACME"}).encodeToken(),
		"speaking for a key":          good.withClaims(jsonObject{"sub": "key:abcdefghijkl"}).encodeToken(),
		"an id token for another aud": good.withClaims(jsonObject{"aud": "my-client-id"}).encodeToken(),
	} {
		if p, err := appOwned.VerifyToken(t.Context(), token); !errors.Is(err, agentsvc.CodeUnauthenticated) {
			t.Errorf("an app's issuer, %s: %+v, %v", name, p, err)
		}
	}
}

// TestExternalIssuer checks the principals of tokens of external issuers.
func TestExternalIssuer(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	good := newValidToken(now)
	base := Principal{
		AppName: "acme", Issuer: "https://issuer.example", Subject: "ana", Roles: []string{"caller"}, Issued: now, MaxClockAhead: time.Minute, Expires: now.Add(time.Hour),
	}
	with := func(change func(*Principal)) Principal {
		p := base
		change(&p)
		return p
	}
	ofAcme := func(change func(*Principal)) Principal {
		p := with(change)
		p.App, p.AppName = "id-of-acme", "acme"
		return p
	}
	server, appOwned := newExternalIssuer(t, "", ""), newExternalIssuer(t, "id-of-acme", "acme")
	byName := appOwned
	byName.RequireAppName = true
	for _, tt := range []struct {
		name   string
		from   TrustedIssuer
		claims jsonObject
		want   Principal
		reason string
	}{
		{"names an app", server, nil, base, ""},
		{"its word for the app's id is not taken", server, jsonObject{"app_id": "id-of-globex"}, base, ""},
		{"names no app", server, jsonObject{"tenant_id": nil, "app_id": nil}, with(func(p *Principal) { p.AppName = "default" }), ""},
		{"names no app but an id", server, jsonObject{"tenant_id": nil}, with(func(p *Principal) { p.AppName = "default" }), ""},
		{"no iat", server, jsonObject{"iat": nil}, with(func(p *Principal) { p.Issued = time.Time{} }), ""},
		{"no roles", server, jsonObject{"roles": nil}, base, ""},
		{"unknown roles", server, jsonObject{"roles": []string{"staff"}}, with(func(p *Principal) { p.Roles = []string{"staff"} }), ""},
		{"scopes of OpenID narrow nothing", server, jsonObject{"scope": "openid profile email"}, base, ""},
		{"scopes of ours do", server, jsonObject{"scope": "openid agents:call:echo tasks:read"},
			with(func(p *Principal) { p.Scopes = []Scope{"agents:call:echo", "tasks:read"} }), ""},
		{"the platform's operator", server, jsonObject{"tenant_id": nil, "roles": []string{"staff", "platform_operator"}},
			with(func(p *Principal) { p.AppName, p.Roles, p.Platform = "", []string{"platform_operator"}, true }), ""},
		{"an operator inside an app is none", server, jsonObject{"roles": []string{"platform_operator"}},
			with(func(p *Principal) { p.Roles = []string{"platform_operator"} }), ""},

		{"an app's own names it", appOwned, nil, ofAcme(func(*Principal) {}), ""},
		{"an app's own names nothing", appOwned, jsonObject{"tenant_id": nil, "app_id": nil}, ofAcme(func(*Principal) {}), ""},
		{"an app's own claims another id", appOwned, jsonObject{"app_id": "id-of-globex"}, ofAcme(func(*Principal) {}), ""},
		{"an app's own makes no operators", appOwned, jsonObject{"tenant_id": nil, "roles": []string{"platform_operator"}},
			ofAcme(func(p *Principal) { p.Roles = []string{"platform_operator"} }), ""},
		{"by name, and it is named", byName, nil, ofAcme(func(*Principal) {}), ""},
		{"by name, and it is not", byName, jsonObject{"tenant_id": nil}, Principal{}, "another app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewVerifier(tt.from).VerifyToken(t.Context(), good.withClaims(tt.claims).encodeToken())
			if !strings.Contains(RefusalReason(err), tt.reason) || (err == nil) != (tt.reason == "") {
				t.Errorf("%v, want %q", RefusalReason(err), tt.reason)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestIssuerOfToken accepts several issuers and checks to which one a token is attributed.
func TestIssuerOfToken(t *testing.T) {
	t.Parallel()
	good := newValidToken(time.Now())
	of := func(app, aud string, byName bool) TrustedIssuer {
		a := newExternalIssuer(t, db.ID("id-of-"+app), app)
		a.Audience, a.RequireAppName = aud, byName
		return a
	}
	server := newExternalIssuer(t, "", "")
	for _, tt := range []struct {
		name   string
		all    []TrustedIssuer
		claims jsonObject
		want   db.ID
		reason string
	}{
		{"by audience", []TrustedIssuer{of("acme", "a", false), of("globex", "g", false)}, jsonObject{"aud": "g", "tenant_id": nil}, "id-of-globex", ""},
		{"by the other audience", []TrustedIssuer{of("acme", "a", false), of("globex", "g", false)}, jsonObject{"aud": "a", "tenant_id": nil}, "id-of-acme", ""},
		{"audience of one, name of another", []TrustedIssuer{of("acme", "a", false), of("globex", "g", false)}, jsonObject{"aud": "g"}, "", "another app"},
		{"both audiences", []TrustedIssuer{of("acme", "a", false), of("globex", "g", false)}, jsonObject{"aud": []string{"a", "g"}, "tenant_id": nil}, "", "more than one"},
		{"both audiences and a name", []TrustedIssuer{of("acme", "a", false), of("globex", "g", false)}, jsonObject{"aud": []string{"a", "g"}}, "id-of-acme", ""},
		{"by name", []TrustedIssuer{of("acme", "s", true), of("globex", "s", true)}, jsonObject{"aud": "s"}, "id-of-acme", ""},
		{"by a name that is missing", []TrustedIssuer{of("acme", "s", true), of("globex", "s", true)}, jsonObject{"aud": "s", "tenant_id": nil}, "", "another app"},
		{"one by name, one by nothing", []TrustedIssuer{of("acme", "s", true), of("globex", "s", false)}, jsonObject{"aud": "s"}, "id-of-acme", ""},
		{"the server's audience and an app's", []TrustedIssuer{server, of("acme", "a", false)}, jsonObject{"aud": []string{"stoa", "a"}}, "", "more than one"},
		{"the server's audience alone", []TrustedIssuer{server, of("acme", "a", false)}, nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewVerifier(tt.all...).VerifyToken(t.Context(), good.withClaims(tt.claims).encodeToken())
			if got.App != tt.want || !strings.Contains(RefusalReason(err), tt.reason) || (err == nil) != (tt.reason == "") {
				t.Errorf("%s: %v, want %s: %q", got.App, RefusalReason(err), tt.want, tt.reason)
			}
		})
	}
}

// TestWithoutKeyID accepts tokens without a key id if the issuer has only one key.
func TestWithoutKeyID(t *testing.T) {
	t.Parallel()
	bare := newValidToken(time.Now()).withHeader(jsonObject{"kid": nil}).encodeToken()
	for name, tt := range map[string]struct {
		body   string
		reason string
	}{
		"one key":     {jwkstest.EncodeSet(jwkstest.NewPublicKey("a")), ""},
		"nameless":    {jwkstest.EncodeSet(jwkstest.NewPublicKey("")), ""},
		"two keys":    {jwkstest.EncodeSet(jwkstest.NewPublicKey("a"), jwkstest.NewPublicKey("b")), "names no key"},
		"another one": {jwkstest.EncodeSet(jose.JSONWebKey{Key: jwkstest.Keys().OtherEd.Public()}), "wrong signature"},
	} {
		keys, _ := serveRemoteKeys(t, tt.body)
		_, err := NewVerifier(TrustedIssuer{Issuer: "https://issuer.example", Audience: "stoa", Keys: keys}).VerifyToken(t.Context(), bare)
		if !strings.Contains(RefusalReason(err), tt.reason) || (err == nil) != (tt.reason == "") {
			t.Errorf("%s: %v, want %q", name, RefusalReason(err), tt.reason)
		}
	}
}

// TestCachedTokens checks that a verified token is accepted only while its issuer's keys are unchanged and the issuer
// is accepted.
func TestCachedTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, s := serveRemoteKeys(t, jwkstest.EncodeSet(jwkstest.NewPublicKey("ed"), jwkstest.NewPublicKey("b")))
		v := NewVerifier()
		e := &issuerEntry{TrustedIssuer: TrustedIssuer{Issuer: "https://issuer.example", Audience: "stoa", Keys: keys, App: "id-of-acme", AppName: "acme"}}
		v.setAppIssuers([]*issuerEntry{e})
		verify := func() error {
			_, err := v.VerifyToken(context.Background(), newValidToken(time.Now()).encodeToken())
			return err
		}
		token := newValidToken(time.Now()).encodeToken()
		if _, err := v.VerifyToken(t.Context(), token); err != nil {
			t.Fatal(RefusalReason(err))
		}
		s.SetResponse(http.StatusOK, jwkstest.EncodeSet(jwkstest.NewPublicKey("b")))
		time.Sleep(16 * time.Minute)
		_ = verify() // starts the refresh that is due
		synctest.Wait()
		if _, err := v.VerifyToken(t.Context(), token); !errors.Is(err, agentsvc.CodeUnauthenticated) {
			t.Errorf("a token of a key that is gone: %v", err)
		}
		s.SetResponse(http.StatusOK, jwkstest.EncodeSet(jwkstest.NewPublicKey("ed")))
		time.Sleep(time.Minute)
		if err := verify(); err != nil {
			t.Fatal(RefusalReason(err))
		}
		v.setAppIssuers(nil)
		e.removed.Store(true)
		if _, err := v.VerifyToken(t.Context(), token); !errors.Is(err, agentsvc.CodeUnauthenticated) {
			t.Errorf("a token of an issuer that is accepted no longer: %v", err)
		}
	})
}
