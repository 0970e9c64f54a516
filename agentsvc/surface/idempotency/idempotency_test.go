package idempotency_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestClaimIdempotencyKey(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s, other := newService(t, d), newService(t, d)
		request := idempotency.Request{Actor: "ana", Key: "k", Method: "POST", Path: "/admin/apps", Body: []byte(`{"name":"a"}`)}
		alter := func(f func(r *idempotency.Request)) idempotency.Request {
			r := request
			f(&r)
			return r
		}
		begin := func(s *tenancy.Service, r idempotency.Request) (*idempotency.Claim, *idempotency.Response, error) {
			t.Helper()
			return s.ClaimIdempotencyKey(t.Context(), r)
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
		wantErr(t, err, idempotency.ErrInProgress)
		for name, r := range others {
			t.Run("in progress, other "+name, func(t *testing.T) {
				_, _, err := begin(other, r)
				wantErr(t, err, idempotency.ErrKeyReused)
			})
		}
		want := idempotency.Response{Status: 201, Body: []byte(`{"name":"a"}`), App: "id"}
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
				wantErr(t, err, idempotency.ErrKeyReused)
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
			wantInvalid(t, err, "Idempotency-Key")
		}
	})
}

// TestClaimIdempotencyKeyExpires lets a claim expire, and later the stored response.
func TestClaimIdempotencyKeyExpires(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		request := idempotency.Request{Actor: "ana", Key: "k", Method: "POST", Path: "/admin/apps"}
		age := func(by time.Duration) {
			execSQL(t, d.Platform(), `UPDATE admin_call SET created_at = created_at - $1`, by.Microseconds())
		}
		dead, _, err := s.ClaimIdempotencyKey(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		age(4 * time.Minute)
		_, _, err = s.ClaimIdempotencyKey(t.Context(), request)
		wantErr(t, err, idempotency.ErrInProgress)
		age(2 * time.Minute)
		successor, _, err := s.ClaimIdempotencyKey(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if err := successor.StoreResponse(t.Context(), idempotency.Response{Status: 200}); err != nil {
			t.Fatal(err)
		}
		if err := dead.StoreResponse(t.Context(), idempotency.Response{Status: 500}); err != nil {
			t.Fatal(err)
		}
		_, response, err := s.ClaimIdempotencyKey(t.Context(), request)
		if err != nil || response == nil || response.Status != 200 {
			t.Errorf("answer %v, %v, want that of the heir", response, err)
		}
		age(25 * time.Hour)
		other := request
		other.Body = []byte("x")
		if c, response, err := s.ClaimIdempotencyKey(t.Context(), other); c == nil || response != nil || err != nil {
			t.Errorf("after a day: claim %v, answer %v, %v", c, response, err)
		}
	})
}

// TestClaimIdempotencyKeyRace sends one request many times concurrently: exactly one is carried out.
func TestClaimIdempotencyKeyRace(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		services := []*tenancy.Service{newService(t, d), newService(t, d)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		claims := 0
		for i := range 20 {
			wg.Go(func() {
				c, _, err := services[i%2].ClaimIdempotencyKey(t.Context(), idempotency.Request{Actor: "ana", Key: "k"})
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
