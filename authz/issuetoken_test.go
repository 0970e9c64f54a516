package authz

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

func TestIssueToken(t *testing.T) {
	t.Parallel()
	i := openIssuer(t, dbtest.NewSQLite(t))
	v := NewVerifier(i.TrustedIssuer())
	for _, tt := range []struct {
		name string
		spec TokenSpec
		want Principal
		ttl  time.Duration
	}{
		{"defaults", TokenSpec{Subject: "ana"}, Principal{Subject: "ana", Roles: []string{"caller"}}, time.Hour},
		{"narrowed", TokenSpec{Subject: "ana", Roles: []string{"admin", "viewer"}, Scope: " agents:call:x  tasks:read tasks:read "},
			Principal{Subject: "ana", Roles: []string{"admin", "viewer"}, Scopes: []Scope{"agents:call:x", TasksRead}}, time.Hour},
		{"shortest", TokenSpec{Subject: "s", TTL: time.Second}, Principal{Subject: "s", Roles: []string{"caller"}}, time.Second},
		{"longest", TokenSpec{Subject: "Ana Ünal <ana@example.com>", TTL: 720 * time.Hour},
			Principal{Subject: "Ana Ünal <ana@example.com>", Roles: []string{"caller"}}, 720 * time.Hour},
		{"longest subject", TokenSpec{Subject: strings.Repeat("ß", 255)},
			Principal{Subject: strings.Repeat("ß", 255), Roles: []string{"caller"}}, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			token, err := i.IssueToken(t.Context(), newAcmeApp(), tt.spec)
			if err != nil {
				t.Fatal(err)
			}
			got, err := v.VerifyToken(t.Context(), token.Text)
			if err != nil {
				t.Fatal(RefusalReason(err))
			}
			tt.want.App, tt.want.AppName, tt.want.Issuer = "id-of-acme", "acme", "stoa"
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(Principal{}, "Issued", "Expires")); diff != "" {
				t.Error(diff)
			}
			if lives := got.Expires.Sub(got.Issued); lives != tt.ttl || token.TTL != tt.ttl {
				t.Errorf("lives %v and says %v, want %v", lives, token.TTL, tt.ttl)
			}
			if age := time.Since(got.Issued); age < 0 || age > time.Minute {
				t.Errorf("was issued %v ago", age)
			}
			if newAcmeApp().IsTokenRevoked(got.Subject, got.Issued, 0) {
				t.Error("is void from the start")
			}
		})
	}
}

func TestIssuedClaims(t *testing.T) {
	t.Parallel()
	i := openIssuer(t, dbtest.NewSQLite(t))
	token, err := i.IssueToken(t.Context(), newAcmeApp(), TokenSpec{Subject: "ana", Scope: "agents:call"})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := jose.ParseSignedCompact(token.Text, tokenAlgorithms)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(signed.UnsafePayloadWithoutVerification(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"iss": "stoa", "aud": "stoa", "sub": "ana", "tenant_id": "acme", "app_id": "id-of-acme",
		"roles": []any{"caller"}, "scope": "agents:call",
	}
	for _, name := range []string{"jti", "iat", "exp"} {
		if got[name] == nil {
			t.Errorf("no %s", name)
		}
		delete(got, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestIssueTokenRefuses(t *testing.T) {
	t.Parallel()
	i := openIssuer(t, dbtest.NewSQLite(t))
	good := TokenSpec{Subject: "ana"}
	with := func(change func(*TokenSpec)) TokenSpec {
		s := good
		change(&s)
		return s
	}
	sub := func(v string) TokenSpec { return with(func(s *TokenSpec) { s.Subject = v }) }
	role := func(v ...string) TokenSpec { return with(func(s *TokenSpec) { s.Roles = v }) }
	scope := func(v string) TokenSpec { return with(func(s *TokenSpec) { s.Scope = v }) }
	ttl := func(v time.Duration) TokenSpec { return with(func(s *TokenSpec) { s.TTL = v }) }
	for _, tt := range []struct {
		name  string
		spec  TokenSpec
		field string
		says  string
	}{
		{"no subject", sub(""), "sub", "1 to 255"},
		{"subject too long", sub(strings.Repeat("a", 256)), "sub", "1 to 255"},
		{"subject with a line break", sub("a\nb"), "sub", "printable"},
		{"subject with a tab", sub("a\tb"), "sub", "printable"},
		{"subject with hidden text", sub("a\u202eb"), "sub", "printable"},
		{"subject in broken UTF-8", sub("a\xffb"), "sub", "printable"},
		{"subject of an API key", sub("key:1"), "sub", "API keys"},
		{"unknown role", role("caller", "root"), "roles", `unknown role "root"; roles are admin, operator, developer, approver, caller, viewer`},
		{"role in capitals", role("Admin"), "roles", "roles are admin,"},
		{"empty role", role(""), "roles", "roles are admin,"},
		{"the platform's role", role("admin", "platform_operator"), "roles", "cannot be given in an app"},
		{"unknown scope", scope("agents:call openid"), "scope", `unknown scope "openid"; scopes are agents:call, agents:call:<agent>, agents:read, config:read`},
		{"scope of a pattern", scope("agents:call:*"), "scope", "no possible agent"},
		{"scope of no agent", scope("agents:call:"), "scope", "no possible agent"},
		{"scope of an agent with a colon", scope("agents:call:a:b"), "scope", "no possible agent"},
		{"a role as scope", scope("admin"), "scope", "scopes are"},
		{"too many scopes", scope(manyAgents(600)), "scope", "8 KiB"},
		{"ttl negative", ttl(-time.Hour), "ttl", "between 1s and 720h"},
		{"ttl under a second", ttl(time.Millisecond), "ttl", "between 1s and 720h"},
		{"ttl over 30 days", ttl(720*time.Hour + time.Second), "ttl", "between 1s and 720h"},
		{"ttl with a fraction", ttl(1500 * time.Millisecond), "ttl", "whole seconds"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			token, err := i.IssueToken(t.Context(), newAcmeApp(), tt.spec)
			var invalid *agentsvc.Error
			if !errors.As(err, &invalid) || token.Text != "" {
				t.Fatalf("got %+v and %v, want an InvalidError", token, err)
			}
			if invalid.Field != tt.field || !strings.Contains(invalid.Message, tt.says) {
				t.Errorf("got %q, want %s: ...%s...", err, tt.field, tt.says)
			}
		})
	}
	if token, err := i.IssueToken(t.Context(), &tenancy.App{}, good); err == nil {
		t.Errorf("minted %q for no app", token.Text)
	}
}

func manyAgents(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("agents:call:agent-")
		b.WriteString(strings.Repeat("x", i%40))
		b.WriteByte(byte('a' + i%26))
		b.WriteByte(' ')
	}
	return b.String()
}

// TestRevocation revokes between two tokens of the same second: the first is refused, the second accepted at once.
func TestRevocation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		apps := tenancy.New(d, newKeyring(t, "m"), signal.New(nil, nil), tenancy.Options{})
		apps.DefaultApp.Set("", []byte("{}"))
		i := openIssuer(t, d)
		v := NewVerifier(i.TrustedIssuer())
		current := func() *tenancy.App {
			t.Helper()
			s, err := apps.LoadSnapshot(t.Context(), tenancy.DefaultID, 0)
			if err != nil {
				t.Fatal(err)
			}
			return &s.App
		}
		newToken := func(sub string) Principal {
			t.Helper()
			token, err := i.IssueToken(t.Context(), current(), TokenSpec{Subject: sub})
			if err != nil {
				t.Fatal(err)
			}
			p, err := v.VerifyToken(t.Context(), token.Text)
			if err != nil {
				t.Fatalf("a fresh token: %s", RefusalReason(err))
			}
			if p.Issued.After(time.Now().Add(time.Millisecond)) {
				t.Errorf("a token is issued at %v, which is yet to come", p.Issued)
			}
			return p
		}
		for _, revoked := range []string{"ana", ""} {
			ana, bob := newToken("ana"), newToken("bob")
			if err := apps.Tokens.Revoke(t.Context(), audit.Actor{Name: "test"}, tenancy.DefaultName, revoked); err != nil {
				t.Fatal(err)
			}
			now := current()
			if !now.IsTokenRevoked(ana.Subject, ana.Issued, 0) {
				t.Errorf("revoked %q: ana's token is still good", revoked)
			}
			if got, want := now.IsTokenRevoked(bob.Subject, bob.Issued, 0), revoked == ""; got != want {
				t.Errorf("revoked %q: bob's token is void = %v, want %v", revoked, got, want)
			}
			if again := newToken("ana"); now.IsTokenRevoked(again.Subject, again.Issued, 0) {
				t.Errorf("revoked %q: ana's next token is void from the start", revoked)
			}
		}
	})
}

func TestOwner(t *testing.T) {
	t.Parallel()
	named := Principal{Issuer: "stoa", Subject: "anonymous"}
	if diff := cmp.Diff(agentsvc.Owner{Issuer: "stoa", Subject: "anonymous"}, named.Owner()); diff != "" {
		t.Error(diff)
	}
	if AnonymousPrincipal("a", "a").Owner() == named.Owner() {
		t.Error("a user called anonymous owns what the anonymous user owns")
	}
}
