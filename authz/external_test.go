package authz

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db"
)

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}

// outside returns the entry of an issuer elsewhere that publishes all the keys of the corpus, bad ones included.
func outside(t *testing.T, app db.ID, name string) Accepted {
	t.Helper()
	set := testAccepted()
	var all []jose.JSONWebKey
	for kid, key := range set.Keys.(fixedKeys) {
		key.KeyID = kid
		all = append(all, key)
	}
	keys, _ := remote(t, jwks(all...))
	return Accepted{Issuer: set.Issuer, Audience: set.Audience, Keys: keys, App: app, AppName: name}
}

// TestForgeriesOutside presents the same tokens where an issuer elsewhere is accepted: for whichever app its tokens
// name, and as an app's own.
func TestForgeriesOutside(t *testing.T) {
	t.Parallel()
	now := time.Now()
	good := genuine(now)
	server, own := NewVerifier(outside(t, "", "")), NewVerifier(outside(t, "id-of-acme", "acme"))
	for _, v := range []*Verifier{server, own} {
		if _, err := v.Verify(t.Context(), good.token()); err != nil {
			t.Fatalf("the good token: %v", Reason(err))
		}
	}
	tried := 0
	for _, tt := range forgeries(t, now) {
		if tt.builtIn {
			continue
		}
		tried++
		for name, v := range map[string]*Verifier{"the server's": server, "an app's": own} {
			if p, err := v.Verify(t.Context(), tt.token); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%s issuer, %s: %+v, %v", name, tt.name, p, err)
			}
		}
	}
	if tried < 60 {
		t.Errorf("only %d forgeries", tried)
	}
	for name, token := range map[string]string{
		"another app's name":          good.withClaims(object{"tenant_id": "globex"}).token(),
		"another app's name, its id":  good.withClaims(object{"tenant_id": "globex", "app_id": "id-of-acme"}).token(),
		"the default app's name":      good.withClaims(object{"tenant_id": "default"}).token(),
		"the name in capitals":        good.withClaims(object{"tenant_id": "ACME"}).token(),
		"speaking for a key":          good.withClaims(object{"sub": "key:abcdefghijkl"}).token(),
		"an id token for another aud": good.withClaims(object{"aud": "my-client-id"}).token(),
	} {
		if p, err := own.Verify(t.Context(), token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("an app's issuer, %s: %+v, %v", name, p, err)
		}
	}
}

// TestOutside reads whom tokens from elsewhere speak for.
func TestOutside(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	good := genuine(now)
	base := Principal{
		AppName: "acme", Issuer: "https://issuer.example", Subject: "ana", Roles: []string{"caller"}, Issued: now, Ahead: time.Minute, Expires: now.Add(time.Hour),
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
	server, own := outside(t, "", ""), outside(t, "id-of-acme", "acme")
	byName := own
	byName.ByName = true
	for _, tt := range []struct {
		name   string
		from   Accepted
		claims object
		want   Principal
		reason string
	}{
		{"names an app", server, nil, base, ""},
		{"its word for the app's id is not taken", server, object{"app_id": "id-of-globex"}, base, ""},
		{"names no app", server, object{"tenant_id": nil, "app_id": nil}, with(func(p *Principal) { p.AppName = "default" }), ""},
		{"names no app but an id", server, object{"tenant_id": nil}, with(func(p *Principal) { p.AppName = "default" }), ""},
		{"no iat", server, object{"iat": nil}, with(func(p *Principal) { p.Issued = time.Time{} }), ""},
		{"no roles", server, object{"roles": nil}, base, ""},
		{"unknown roles", server, object{"roles": []string{"staff"}}, with(func(p *Principal) { p.Roles = []string{"staff"} }), ""},
		{"scopes of OpenID narrow nothing", server, object{"scope": "openid profile email"}, base, ""},
		{"scopes of ours do", server, object{"scope": "openid agents:call:echo tasks:read"},
			with(func(p *Principal) { p.Scopes = []Scope{"agents:call:echo", "tasks:read"} }), ""},
		{"the platform's operator", server, object{"tenant_id": nil, "roles": []string{"staff", "platform_operator"}},
			with(func(p *Principal) { p.AppName, p.Roles, p.Platform = "", []string{"platform_operator"}, true }), ""},
		{"an operator inside an app is none", server, object{"roles": []string{"platform_operator"}},
			with(func(p *Principal) { p.Roles = []string{"platform_operator"} }), ""},

		{"an app's own names it", own, nil, ofAcme(func(*Principal) {}), ""},
		{"an app's own names nothing", own, object{"tenant_id": nil, "app_id": nil}, ofAcme(func(*Principal) {}), ""},
		{"an app's own claims another id", own, object{"app_id": "id-of-globex"}, ofAcme(func(*Principal) {}), ""},
		{"an app's own makes no operators", own, object{"tenant_id": nil, "roles": []string{"platform_operator"}},
			ofAcme(func(p *Principal) { p.Roles = []string{"platform_operator"} }), ""},
		{"by name, and it is named", byName, nil, ofAcme(func(*Principal) {}), ""},
		{"by name, and it is not", byName, object{"tenant_id": nil}, Principal{}, "another app"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewVerifier(tt.from).Verify(t.Context(), good.withClaims(tt.claims).token())
			if !strings.Contains(Reason(err), tt.reason) || (err == nil) != (tt.reason == "") {
				t.Errorf("%v, want %q", Reason(err), tt.reason)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhoseToken has several issuers accepted that tokens could be of.
func TestWhoseToken(t *testing.T) {
	t.Parallel()
	good := genuine(time.Now())
	of := func(app, aud string, byName bool) Accepted {
		a := outside(t, db.ID("id-of-"+app), app)
		a.Audience, a.ByName = aud, byName
		return a
	}
	server := outside(t, "", "")
	for _, tt := range []struct {
		name   string
		all    []Accepted
		claims object
		want   db.ID
		reason string
	}{
		{"by audience", []Accepted{of("acme", "a", false), of("globex", "g", false)}, object{"aud": "g", "tenant_id": nil}, "id-of-globex", ""},
		{"by the other audience", []Accepted{of("acme", "a", false), of("globex", "g", false)}, object{"aud": "a", "tenant_id": nil}, "id-of-acme", ""},
		{"audience of one, name of another", []Accepted{of("acme", "a", false), of("globex", "g", false)}, object{"aud": "g"}, "", "another app"},
		{"both audiences", []Accepted{of("acme", "a", false), of("globex", "g", false)}, object{"aud": []string{"a", "g"}, "tenant_id": nil}, "", "more than one"},
		{"both audiences and a name", []Accepted{of("acme", "a", false), of("globex", "g", false)}, object{"aud": []string{"a", "g"}}, "id-of-acme", ""},
		{"by name", []Accepted{of("acme", "s", true), of("globex", "s", true)}, object{"aud": "s"}, "id-of-acme", ""},
		{"by a name that is missing", []Accepted{of("acme", "s", true), of("globex", "s", true)}, object{"aud": "s", "tenant_id": nil}, "", "another app"},
		{"one by name, one by nothing", []Accepted{of("acme", "s", true), of("globex", "s", false)}, object{"aud": "s"}, "id-of-acme", ""},
		{"the server's audience and an app's", []Accepted{server, of("acme", "a", false)}, object{"aud": []string{"stoa", "a"}}, "", "more than one"},
		{"the server's audience alone", []Accepted{server, of("acme", "a", false)}, nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewVerifier(tt.all...).Verify(t.Context(), good.withClaims(tt.claims).token())
			if got.App != tt.want || !strings.Contains(Reason(err), tt.reason) || (err == nil) != (tt.reason == "") {
				t.Errorf("%s: %v, want %s: %q", got.App, Reason(err), tt.want, tt.reason)
			}
		})
	}
}

// TestWithoutKeyID takes tokens that name no key where the issuer has but one.
func TestWithoutKeyID(t *testing.T) {
	t.Parallel()
	bare := genuine(time.Now()).withHeader(object{"kid": nil}).token()
	for name, tt := range map[string]struct {
		body   string
		reason string
	}{
		"one key":     {jwks(ed("a")), ""},
		"nameless":    {jwks(ed("")), ""},
		"two keys":    {jwks(ed("a"), ed("b")), "names no key"},
		"another one": {jwks(jose.JSONWebKey{Key: testKeys().otherEd.Public()}), "wrong signature"},
	} {
		keys, _ := remote(t, tt.body)
		_, err := NewVerifier(Accepted{Issuer: "https://issuer.example", Audience: "stoa", Keys: keys}).Verify(t.Context(), bare)
		if !strings.Contains(Reason(err), tt.reason) || (err == nil) != (tt.reason == "") {
			t.Errorf("%s: %v, want %q", name, Reason(err), tt.reason)
		}
	}
}

// TestRemembered has a token that was verified believed no longer than its issuer's keys stay as they are and the
// issuer stays accepted.
func TestRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		keys, s := remote(t, jwks(ed("ed"), ed("b")))
		v := NewVerifier()
		e := &entry{Accepted: Accepted{Issuer: "https://issuer.example", Audience: "stoa", Keys: keys, App: "id-of-acme", AppName: "acme"}}
		v.accept([]*entry{e})
		verify := func() error {
			_, err := v.Verify(context.Background(), genuine(time.Now()).token())
			return err
		}
		token := genuine(time.Now()).token()
		if _, err := v.Verify(t.Context(), token); err != nil {
			t.Fatal(Reason(err))
		}
		s.answer(http.StatusOK, jwks(ed("b")))
		time.Sleep(16 * time.Minute)
		_ = verify() // due for a refresh
		synctest.Wait()
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a token of a key that is gone: %v", err)
		}
		s.answer(http.StatusOK, jwks(ed("ed")))
		time.Sleep(time.Minute)
		if err := verify(); err != nil {
			t.Fatal(Reason(err))
		}
		v.accept(nil)
		e.gone.Store(true)
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a token of an issuer that is accepted no longer: %v", err)
		}
	})
}
