package authz

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/authz/jwks"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

func newKeyring(t testing.TB, masters ...string) *keyring.Keyring {
	t.Helper()
	var raw [][]byte
	for _, m := range masters {
		raw = append(raw, []byte(strings.Repeat(m, 32)[:32]))
	}
	k, err := keyring.New(raw...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func openIssuer(t testing.TB, d *db.DB) *BuiltInIssuer {
	t.Helper()
	i, err := OpenBuiltInIssuer(t.Context(), d, newKeyring(t, "m"), BuiltInIssuerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func newAcmeApp() *tenancy.App {
	return &tenancy.App{ID: "id-of-acme", Name: "acme", Status: tenancy.Active, CreatedAt: time.Now().Add(-time.Hour)}
}

func issueToken(t testing.TB, i *BuiltInIssuer, sub string) string {
	t.Helper()
	token, err := i.IssueToken(t.Context(), newAcmeApp(), TokenSpec{Subject: sub})
	if err != nil {
		t.Fatal(err)
	}
	return token.Text
}

func verifyToken(t testing.TB, v *Verifier, token string) error {
	t.Helper()
	_, err := v.VerifyToken(t.Context(), token)
	return err
}

// checkKeysNow makes i read its keys.
func checkKeysNow(t testing.TB, i *BuiltInIssuer) {
	t.Helper()
	if err := i.checkKeysIfDue(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
}

// ageSigningKeys makes every signing key older by d.
func ageSigningKeys(t testing.TB, d *db.DB, by time.Duration) {
	t.Helper()
	var b db.Batch
	b.Exec(nil, `UPDATE signing_key SET signs_from = signs_from - $1, created_at = created_at - $1`, by.Microseconds())
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func keyGenerations(i *BuiltInIssuer) (all []int64) {
	for _, k := range i.snapshot.Load().keys {
		all = append(all, k.generation)
	}
	return all
}

const day = 24 * time.Hour

// TestKeySchedule follows the generations of keys from creation to deletion.
func TestKeySchedule(t *testing.T) {
	t.Parallel()
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	after := start.Add
	two := []signingKey{{generation: 1, from: start}, {generation: 2, from: after(90 * day)}}
	one := two[:1]
	for _, tt := range []struct {
		name     string
		keys     []signingKey
		now      time.Time
		signs    int64 // 0: there are no keys
		nextFrom time.Time
		retired  int
	}{
		{"none yet", nil, start, 0, start, 0},
		{"fresh", one, start, 1, time.Time{}, 0},
		{"a database whose clock went back", one, after(-time.Hour), 1, time.Time{}, 0},
		{"83 days, short of", one, after(83*day - 1), 1, time.Time{}, 0},
		{"83 days", one, after(83 * day), 1, after(90 * day), 0},
		{"one key, 86 days", one, after(86 * day), 1, after(93 * day), 0},
		{"one key after a long sleep", one, after(500 * day), 1, after(507 * day), 0},
		{"next is published", two, after(84 * day), 1, time.Time{}, 0},
		{"next is about to sign", two, after(90*day - 1), 1, time.Time{}, 0},
		{"next signs", two, after(90 * day), 2, time.Time{}, 0},
		{"last token of the first", two, after(120*day + time.Hour - 1), 2, time.Time{}, 0},
		{"first is over", two, after(120*day + time.Hour), 2, time.Time{}, 1},
		{"second ends", two, after(173 * day), 2, after(180 * day), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.signs != 0 {
				if got := currentSigningKey(tt.keys, tt.now).generation; got != tt.signs {
					t.Errorf("generation %d signs, want %d", got, tt.signs)
				}
			}
			generation, from, due := nextKeyDue(tt.keys, tt.now)
			if due != !tt.nextFrom.IsZero() || !from.Equal(tt.nextFrom) {
				t.Errorf("next begins at %v (due %v), want %v", from, due, tt.nextFrom)
			}
			if due && generation != int64(len(tt.keys)+1) {
				t.Errorf("next is generation %d, want %d", generation, len(tt.keys)+1)
			}
			if got := countRetired(tt.keys, tt.now); got != tt.retired {
				t.Errorf("%d keys are over, want %d", got, tt.retired)
			}
		})
	}
}

func TestIssuerNameIsFixedAtFirstStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, first, want string }{
		{"public URL", "https://agents.example.com", "https://agents.example.com"},
		{"none", "", "stoa"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				for _, name := range []string{tt.first, "https://moved.example.com", ""} {
					i, err := OpenBuiltInIssuer(t.Context(), d, newKeyring(t, "m"), BuiltInIssuerOptions{Name: name})
					if err != nil {
						t.Fatal(err)
					}
					if a := i.TrustedIssuer(); a.Issuer != tt.want || a.Audience != "stoa" {
						t.Errorf("started as %q: iss %q aud %q, want %q and stoa", name, a.Issuer, a.Audience, tt.want)
					}
				}
			})
		})
	}
}

// TestReplicasStartAtOnce opens five issuers on one empty database: they have one key, and each accepts the others'
// tokens.
func TestReplicasStartAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		issuers := make([]*BuiltInIssuer, 5)
		var wg sync.WaitGroup
		for n := range issuers {
			wg.Go(func() {
				i, err := OpenBuiltInIssuer(context.Background(), d, newKeyring(t, "m"), BuiltInIssuerOptions{})
				if err != nil {
					t.Error(err)
				}
				issuers[n] = i
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
		for _, a := range issuers {
			if diff := cmp.Diff([]int64{1}, keyGenerations(a)); diff != "" {
				t.Error(diff)
			}
			token := issueToken(t, a, "ana")
			for _, b := range issuers {
				if err := verifyToken(t, NewVerifier(b.TrustedIssuer()), token); err != nil {
					t.Errorf("a token of another replica: %s", RefusalReason(err))
				}
			}
		}
	})
}

// TestGenerationIsMadeOnce lets two replicas find the same generation due: only one key is stored.
func TestGenerationIsMadeOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := keyStore{db: d.Platform(), masterKeys: newKeyring(t, "m")}
		var made []string
		for range 2 {
			if err := s.addKey(t.Context(), 1, time.Now()); err != nil {
				t.Fatal(err)
			}
			keys, _, err := s.loadKeys(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range keys {
				made = append(made, k.id)
			}
		}
		if len(made) != 2 || made[0] != made[1] {
			t.Errorf("saw the keys %v, want the same one twice", made)
		}
	})
}

// TestRotation runs two replicas on one database through several generations of keys.
func TestRotation(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		a, b := openIssuer(t, d), openIssuer(t, d)
		va, vb := NewVerifier(a.TrustedIssuer()), NewVerifier(b.TrustedIssuer())
		first := issueToken(t, a, "ana")
		good := func(when string, v *Verifier, token string) {
			t.Helper()
			if err := verifyToken(t, v, token); err != nil {
				t.Errorf("%s: %v (%s)", when, err, RefusalReason(err))
			}
		}
		good("fresh", va, first)
		good("fresh, elsewhere", vb, first)

		ageSigningKeys(t, d, 84*day)
		generation := a.Generation()
		checkKeysNow(t, a)
		if diff := cmp.Diff([]int64{1, 2}, keyGenerations(a)); diff != "" {
			t.Fatal(diff)
		}
		if a.Generation() == generation {
			t.Error("a new key left the version as it was: cached tokens would stay")
		}
		if published := publishedKeys(t, a); len(published) != 2 {
			t.Errorf("%d keys are published, want both", len(published))
		}
		if kid := kidOf(t, issueToken(t, a, "ana")); kid != kidOf(t, first) {
			t.Error("the next key signs before its time")
		}

		ageSigningKeys(t, d, 7*day)
		checkKeysNow(t, a)
		second := issueToken(t, a, "ana")
		if kidOf(t, second) == kidOf(t, first) {
			t.Fatal("the old key still signs")
		}
		good("old key's token", va, first)
		good("new key's token", va, second)

		b.lastCheck = time.Time{} // b read its keys long ago and knows only the first
		good("new key's token, where nobody knew the key", vb, second)

		ageSigningKeys(t, d, 31*day)
		checkKeysNow(t, a)
		if diff := cmp.Diff([]int64{2}, keyGenerations(a)); diff != "" {
			t.Error(diff)
		}
		if err := verifyToken(t, va, first); RefusalReason(err) != "signed by an unknown key" {
			t.Errorf("a token of a key that is gone: got %v (%s)", err, RefusalReason(err))
		}
		good("new key's token", va, second)
		checkKeysNow(t, b)
		if diff := cmp.Diff(a.JWKS(), b.JWKS()); diff != "" {
			t.Errorf("replicas publish different keys: %s", diff)
		}
	})
}

// TestUnknownKeysCauseFewChecks floods an issuer with tokens of keys that do not exist.
func TestUnknownKeysCauseFewChecks(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	i, other := openIssuer(t, d), openIssuer(t, d)
	v := NewVerifier(i.TrustedIssuer())
	if _, err := i.FindKey(t.Context(), "nobody's"); !errors.Is(err, jwks.ErrUnknownKey) {
		t.Fatalf("got %v, want ErrUnknownKey", err)
	}

	ageSigningKeys(t, d, 84*day)
	checkKeysNow(t, other)
	ageSigningKeys(t, d, 7*day)
	checkKeysNow(t, other)
	token := issueToken(t, other, "ana")
	i.lastCheck = time.Now().Add(time.Minute) // in the future, so that no check becomes due during the test
	lastCheck := i.lastCheck
	for range 100 {
		if err := verifyToken(t, v, token); RefusalReason(err) != "signed by an unknown key" {
			t.Fatalf("got %v (%s), want a refusal: the last look was just now", err, RefusalReason(err))
		}
	}
	if i.lastCheck != lastCheck {
		t.Error("an unknown key caused a look right after the last")
	}
	i.lastCheck = time.Now().Add(-keyCheckMinGap)
	if err := verifyToken(t, v, token); err != nil {
		t.Errorf("after the gap: %v (%s)", err, RefusalReason(err))
	}
}

func TestFailedKeyCheckRefusesNoToken(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	i := openIssuer(t, d)
	known, unknown := issueToken(t, i, "ana"), newValidToken(time.Now()).withClaims(jsonObject{"iss": "stoa"}).encodeToken()
	var b db.Batch
	b.Exec(nil, `ALTER TABLE signing_key RENAME TO away`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	i.lastCheck = time.Time{}
	v := NewVerifier(i.TrustedIssuer())
	for range 2 { // the second result comes without reading again
		if err := verifyToken(t, v, unknown); err == nil || errors.Is(err, agentsvc.CodeUnauthenticated) {
			t.Errorf("a key that could not be looked for: got %v, want another error than a refusal", err)
		}
	}
	if err := verifyToken(t, v, known); err != nil {
		t.Errorf("a known key: %v (%s)", err, RefusalReason(err))
	}
}

func TestMasterKeys(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		open := func(masters ...string) (*BuiltInIssuer, error) {
			return OpenBuiltInIssuer(t.Context(), d, newKeyring(t, masters...), BuiltInIssuerOptions{})
		}
		i, err := open("old")
		if err != nil {
			t.Fatal(err)
		}
		token := issueToken(t, i, "ana")
		if _, err := open("wrong"); err == nil || !strings.Contains(err.Error(), "master key") {
			t.Errorf("started with a wrong master key: got %v, want an error about it", err)
		}
		if _, err := open("new", "old"); err != nil {
			t.Fatal(err)
		}
		i, err = open("new")
		if err != nil {
			t.Fatalf("after the keys were sealed anew: %v", err)
		}
		if err := verifyToken(t, NewVerifier(i.TrustedIssuer()), token); err != nil {
			t.Errorf("a token from before: %s", RefusalReason(err))
		}
	})
}

func TestKeysAreSealed(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	i := openIssuer(t, d)
	var stored []byte
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&stored) }, `SELECT seed FROM signing_key`)
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	seed := i.snapshot.Load().keys[0].private.Seed()
	if len(stored) == 0 || bytes.Contains(stored, seed[:8]) {
		t.Error("the database holds the bare key")
	}
	if bytes.Contains(i.JWKS(), []byte(`"d"`)) {
		t.Errorf("the published set holds a private key: %s", i.JWKS())
	}
}

func TestTenantsSeeNoSigningKeys(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	openIssuer(t, d)
	for _, table := range []string{"signing_key", "setting"} {
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT count(*) FROM `+table)
		if err := d.Tenant("alice").Do(t.Context(), &b); err == nil {
			t.Errorf("a tenant reads %d rows of %s, want an error", n, table)
		}
	}
}

func TestRunFollowsTheKeys(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	d := dbtest.NewSQLite(t)
	i, err := OpenBuiltInIssuer(t.Context(), d, newKeyring(t, "m"), BuiltInIssuerOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ageSigningKeys(t, d, 84*day)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- i.runEvery(ctx, time.Millisecond, 0) }()
	for deadline := time.Now().Add(time.Minute); len(keyGenerations(i)) < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no next key was made")
		}
	}
	cancel()
	if err := <-done; err != nil || log.Len() > 0 {
		t.Errorf("ended with %v, logged %q", err, log.String())
	}
}

func publishedKeys(t testing.TB, i *BuiltInIssuer) []jose.JSONWebKey {
	t.Helper()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(i.JWKS(), &set); err != nil {
		t.Fatal(err)
	}
	for _, k := range set.Keys {
		if !k.IsPublic() || k.Algorithm != "EdDSA" || k.Use != "sig" || k.KeyID == "" {
			t.Errorf("published key %+v", k)
		}
	}
	return set.Keys
}

func kidOf(t testing.TB, token string) string {
	t.Helper()
	signed, err := jose.ParseSignedCompact(token, tokenAlgorithms)
	if err != nil {
		t.Fatal(err)
	}
	return signed.Signatures[0].Header.KeyID
}
