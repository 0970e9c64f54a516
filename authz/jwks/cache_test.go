package jwks

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"stoa/authz/jwks/jwkstest"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestCache checks that a process which starts while an issuer does not answer uses the keys that others fetched,
// for as long as those would, and only for that issuer.
func TestCache(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		start := func(s *jwkstest.Server, url string) *RemoteSet {
			r := NewRemoteSet(url, Options{
				HTTP: &http.Client{Transport: s}, Refresh: 15 * time.Minute, Cache: NewCache(d), Log: slog.New(slog.DiscardHandler),
			})
			t.Cleanup(r.Close)
			return r
		}
		const url = "https://issuer.example/jwks"
		unreachable := jwkstest.NewServer(0, "")
		if err := start(unreachable, url).EnsureFetched(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("nothing is kept: %v", err)
		}
		if err := start(jwkstest.NewServer(http.StatusOK, jwkstest.EncodeSet(jwkstest.NewPublicKey("k"))), url).EnsureFetched(t.Context()); err != nil {
			t.Fatal(err)
		}
		late := start(unreachable, url)
		if _, err := late.FindKey(t.Context(), "k"); err != nil {
			t.Errorf("a key that is kept: %v", err)
		}
		if _, err := late.FindKey(t.Context(), "unknown"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("a key that nobody knows in an outage: %v", err)
		}
		if err := start(unreachable, url).EnsureFetched(t.Context()); err != nil {
			t.Errorf("a start with keys that are kept: %v", err)
		}
		if _, err := start(unreachable, "https://other.example/jwks").FindKey(t.Context(), "k"); !errors.Is(err, ErrUnavailable) {
			t.Errorf("another issuer's: %v", err)
		}
		older := func(by time.Duration) {
			t.Helper()
			var b db.Batch
			b.Exec(nil, `UPDATE jwks SET fetched_at = stoa_now() - $1`, by.Microseconds())
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		older(70 * time.Minute)
		if err := start(unreachable, url).EnsureFetched(t.Context()); err != nil {
			t.Errorf("after seventy minutes: %v", err)
		}
		older(76 * time.Minute)
		if err := start(unreachable, url).EnsureFetched(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("an hour after they were due: %v", err)
		}
		older(49 * time.Hour)
		if err := start(jwkstest.NewServer(http.StatusOK, jwkstest.EncodeSet(jwkstest.NewPublicKey("k"))), "https://other.example/jwks").EnsureFetched(t.Context()); err != nil {
			t.Fatal(err)
		}
		var n int
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM jwks`)
		if err := d.Platform().Do(t.Context(), &b); err != nil || n != 1 {
			t.Errorf("%d sets are kept, %v; want the one that is fresh", n, err)
		}
	})
}
