package idempotency_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc/agentsvctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/idempotency"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func newStore(d *db.DB) *idempotency.Store { return idempotency.New(d, slog.New(slog.DiscardHandler)) }

func TestClaim(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, other := newStore(d), newStore(d)
		request := idempotency.Request{Actor: "ana", Key: "k", Method: "POST", Path: "/admin/apps", Body: []byte(`{"name":"a"}`)}
		alter := func(f func(r *idempotency.Request)) idempotency.Request {
			r := request
			f(&r)
			return r
		}
		begin := func(s *idempotency.Store, r idempotency.Request) (*idempotency.Claim, *idempotency.Response, error) {
			t.Helper()
			return s.Claim(t.Context(), r)
		}
		claim, response, err := begin(s, request)
		if claim == nil || response != nil || err != nil {
			t.Fatalf("first: claim %v, answer %v, %v", claim, response, err)
		}
		others := map[string]idempotency.Request{
			"body":   alter(func(r *idempotency.Request) { r.Body = []byte(`{}`) }),
			"path":   alter(func(r *idempotency.Request) { r.Path = "/admin/apps?dry_run=true" }),
			"method": alter(func(r *idempotency.Request) { r.Method = "PUT" }),
		}
		_, _, err = begin(other, request)
		agentsvctest.CheckError(t, err, idempotency.ErrInProgress)
		for name, r := range others {
			t.Run("in progress, other "+name, func(t *testing.T) {
				_, _, err := begin(other, r)
				agentsvctest.CheckError(t, err, agentsvc.ErrKeyReused)
			})
		}
		want := idempotency.Response{Status: 201, Location: "/admin/apps/a", ETag: `"1"`, Body: []byte(`{"name":"a"}`), App: "id"}
		if err := claim.StoreResponse(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		claim, response, err = begin(other, request)
		if claim != nil || err != nil {
			t.Fatalf("replay: claim %v, %v", claim, err)
		}
		if diff := cmp.Diff(&want, response); diff != "" {
			t.Errorf("replay (-want +got):\n%s", diff)
		}
		for name, r := range others {
			t.Run("finished, other "+name, func(t *testing.T) {
				_, _, err := begin(other, r)
				agentsvctest.CheckError(t, err, agentsvc.ErrKeyReused)
			})
		}
		if claim, response, err = begin(s, alter(func(r *idempotency.Request) { r.Actor = "bob" })); claim == nil || response != nil || err != nil {
			t.Errorf("another actor's key: claim %v, answer %v, %v", claim, response, err)
		}
		if err := claim.ReleaseKey(t.Context()); err != nil {
			t.Fatal(err)
		}
		if claim, response, err = begin(s, alter(func(r *idempotency.Request) { r.Actor = "bob" })); claim == nil || response != nil || err != nil {
			t.Errorf("after an abandoned call: claim %v, answer %v, %v", claim, response, err)
		}
		for _, key := range []string{"", strings.Repeat("k", 256)} {
			_, _, err = begin(s, alter(func(r *idempotency.Request) { r.Key = key }))
			var invalid *agentsvc.Error
			if !errors.As(err, &invalid) || invalid.Field != "Idempotency-Key" {
				t.Errorf("got error %v, want one about Idempotency-Key", err)
			}
		}
	})
}

// TestClaimExpires lets a claim expire, and later the stored response.
func TestClaimExpires(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newStore(d)
		request := idempotency.Request{Actor: "ana", Key: "k", Method: "POST", Path: "/admin/apps"}
		age := func(by time.Duration) {
			t.Helper()
			var b db.Batch
			b.Exec(nil, `UPDATE admin_call SET created_at = created_at - $1`, by.Microseconds())
			if err := d.Platform().Do(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		dead, _, err := s.Claim(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		age(4 * time.Minute)
		_, _, err = s.Claim(t.Context(), request)
		agentsvctest.CheckError(t, err, idempotency.ErrInProgress)
		age(2 * time.Minute)
		successor, _, err := s.Claim(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if err := successor.StoreResponse(t.Context(), idempotency.Response{Status: 200}); err != nil {
			t.Fatal(err)
		}
		if err := dead.StoreResponse(t.Context(), idempotency.Response{Status: 500}); err != nil {
			t.Fatal(err)
		}
		_, response, err := s.Claim(t.Context(), request)
		if err != nil || response == nil || response.Status != 200 {
			t.Errorf("answer %v, %v, want that of the heir", response, err)
		}
		age(25 * time.Hour)
		other := request
		other.Body = []byte("x")
		if c, response, err := s.Claim(t.Context(), other); c == nil || response != nil || err != nil {
			t.Errorf("after a day: claim %v, answer %v, %v", c, response, err)
		}
	})
}

// TestClaimRace sends one request many times concurrently: exactly one is carried out.
func TestClaimRace(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		services := []*idempotency.Store{newStore(d), newStore(d)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		claims := 0
		for i := range 20 {
			wg.Go(func() {
				c, _, err := services[i%2].Claim(t.Context(), idempotency.Request{Actor: "ana", Key: "k"})
				if err != nil && !errors.Is(err, idempotency.ErrInProgress) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if c != nil {
					claims++
				}
			})
		}
		wg.Wait()
		if claims != 1 {
			t.Errorf("%d claims, want 1", claims)
		}
	})
}

// TestDeleteApp deletes the responses about one app and no other.
func TestDeleteApp(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newStore(d)
		request := func(app db.ID) idempotency.Request {
			return idempotency.Request{Actor: "ana", Key: string(app), Method: "POST", Path: "/admin/apps"}
		}
		for _, app := range []db.ID{"acme", "globex"} {
			c, _, err := s.Claim(t.Context(), request(app))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.StoreResponse(t.Context(), idempotency.Response{Status: 201, Body: []byte(`{}`), App: app}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.DeleteApp(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if _, response, err := s.Claim(t.Context(), request("acme")); response != nil || err != nil {
			t.Errorf("the deleted app's response is %v, %v", response, err)
		}
		if _, response, err := s.Claim(t.Context(), request("globex")); response == nil || err != nil {
			t.Errorf("the other app's response is %v, %v", response, err)
		}
	})
}

// TestIsolation checks that no tenant can read the stored responses.
func TestIsolation(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t) // SQLite has no row-level security
	var b db.Batch
	b.Query(func(db.Row) error { return nil }, `SELECT * FROM admin_call`)
	if err := d.Tenant("acme").Do(t.Context(), &b); err == nil {
		t.Error("a tenant may read the stored responses")
	}
}

// TestRun checks that Run deletes expired keys again and again.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- newStore(d).Run(ctx) }()
		synctest.Wait()
		var b db.Batch
		b.Exec(nil, `INSERT INTO admin_call (actor, key, request, claim, status, body, app_id, created_at)
			VALUES ('a', 'old', '', '', 200, '', '', $1), ('a', 'new', '', '', 200, '', '', stoa_now())`, time.Now().Add(-25*time.Hour).UnixMicro())
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		n := 0
		var count db.Batch
		count.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM admin_call`)
		if err := d.Platform().Do(t.Context(), &count); err != nil || n != 1 {
			t.Errorf("%d keys are stored, %v; want the new one", n, err)
		}
		cancel()
		agentsvctest.CheckError(t, <-done, context.Canceled)
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
