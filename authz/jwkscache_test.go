package authz

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestJWKSCache checks that a process which starts while an issuer does not answer uses the keys that others fetched,
// for as long as those would, and only for that issuer.
func TestJWKSCache(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		start := func(s *jwksServer, url string) *RemoteKeySet {
			r := NewRemoteKeySet(url, RemoteKeySetOptions{
				HTTP: &http.Client{Transport: s}, Refresh: 15 * time.Minute, JWKSCache: NewJWKSCache(d), Log: slog.New(slog.DiscardHandler),
			})
			t.Cleanup(r.Close)
			return r
		}
		const url = "https://issuer.example/jwks"
		unreachable := &jwksServer{}
		if err := start(unreachable, url).EnsureFetched(t.Context()); !errors.Is(err, ErrKeysUnavailable) {
			t.Errorf("nothing is kept: %v", err)
		}
		if err := start(&jwksServer{status: http.StatusOK, body: encodeJWKS(newEd25519Key("k"))}, url).EnsureFetched(t.Context()); err != nil {
			t.Fatal(err)
		}
		late := start(unreachable, url)
		if _, err := late.FindKey(t.Context(), "k"); err != nil {
			t.Errorf("a key that is kept: %v", err)
		}
		if _, err := late.FindKey(t.Context(), "unknown"); !errors.Is(err, ErrKeysUnavailable) {
			t.Errorf("an unknown key in an outage: %v", err)
		}
		if err := start(unreachable, url).EnsureFetched(t.Context()); err != nil {
			t.Errorf("a start with keys that are kept: %v", err)
		}
		if _, err := start(unreachable, "https://other.example/jwks").FindKey(t.Context(), "k"); !errors.Is(err, ErrKeysUnavailable) {
			t.Errorf("another issuer's: %v", err)
		}
		older := func(by time.Duration) {
			t.Helper()
			var b db.Batch
			b.Exec(nil, `UPDATE setting SET value = CAST(stoa_now() - $1 AS TEXT) || substr(value, 17) WHERE name LIKE 'issuer_keys:%'`, by.Microseconds())
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		older(70 * time.Minute)
		if err := start(unreachable, url).EnsureFetched(t.Context()); err != nil {
			t.Errorf("after seventy minutes: %v", err)
		}
		older(76 * time.Minute)
		if err := start(unreachable, url).EnsureFetched(t.Context()); !errors.Is(err, ErrKeysUnavailable) {
			t.Errorf("an hour after they were due: %v", err)
		}
		older(49 * time.Hour)
		if err := start(&jwksServer{status: http.StatusOK, body: encodeJWKS(newEd25519Key("k"))}, "https://other.example/jwks").EnsureFetched(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM setting WHERE name LIKE 'issuer_keys:%'`)
		if err := d.Platform().Do(t.Context(), &b); err != nil || n != 1 {
			t.Errorf("%d sets are kept, %v; want the one that is fresh", n, err)
		}
	})
}
