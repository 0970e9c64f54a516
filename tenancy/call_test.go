package tenancy_test

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

func TestBegin(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, other := service(t, d), service(t, d)
		request := tenancy.Request{Actor: "ana", Key: "k", Method: "POST", Path: "/admin/apps", Body: []byte(`{"name":"a"}`)}
		alter := func(f func(r *tenancy.Request)) tenancy.Request {
			r := request
			f(&r)
			return r
		}
		begin := func(s *tenancy.Service, r tenancy.Request) (*tenancy.Claim, *tenancy.Answer, error) {
			t.Helper()
			return s.Begin(t.Context(), r)
		}
		claim, answer, err := begin(s, request)
		if claim == nil || answer != nil || err != nil {
			t.Fatalf("first: claim %v, answer %v, %v", claim, answer, err)
		}
		others := map[string]tenancy.Request{
			"body":   alter(func(r *tenancy.Request) { r.Body = []byte(`{}`) }),
			"path":   alter(func(r *tenancy.Request) { r.Path = "/admin/apps?dry_run=true" }),
			"method": alter(func(r *tenancy.Request) { r.Method = "PUT" }),
		}
		_, _, err = begin(other, request)
		wantErr(t, err, tenancy.ErrInProgress)
		for name, r := range others {
			t.Run("in progress, other "+name, func(t *testing.T) {
				_, _, err := begin(other, r)
				wantErr(t, err, tenancy.ErrKeyReused)
			})
		}
		want := tenancy.Answer{Status: 201, Body: []byte(`{"name":"a"}`), App: "id"}
		if err := claim.Finish(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		claim, answer, err = begin(other, request)
		if claim != nil || err != nil {
			t.Fatalf("replay: claim %v, %v", claim, err)
		}
		if diff := cmp.Diff(&want, answer); diff != "" {
			t.Errorf("replay (-want +got):\n%s", diff)
		}
		for name, r := range others {
			t.Run("finished, other "+name, func(t *testing.T) {
				_, _, err := begin(other, r)
				wantErr(t, err, tenancy.ErrKeyReused)
			})
		}
		if claim, answer, err = begin(s, alter(func(r *tenancy.Request) { r.Actor = "bob" })); claim == nil || answer != nil || err != nil {
			t.Errorf("another actor's key: claim %v, answer %v, %v", claim, answer, err)
		}
		if err := claim.Abandon(t.Context()); err != nil {
			t.Fatal(err)
		}
		if claim, answer, err = begin(s, alter(func(r *tenancy.Request) { r.Actor = "bob" })); claim == nil || answer != nil || err != nil {
			t.Errorf("after an abandoned call: claim %v, answer %v, %v", claim, answer, err)
		}
		for _, key := range []string{"", strings.Repeat("k", 256)} {
			_, _, err = begin(s, alter(func(r *tenancy.Request) { r.Key = key }))
			wantInvalid(t, err, "Idempotency-Key")
		}
	})
}

// TestBeginAges lets the holder of a key die, and an answer grow old.
func TestBeginAges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := service(t, d)
		request := tenancy.Request{Actor: "ana", Key: "k", Method: "POST", Path: "/admin/apps"}
		age := func(by time.Duration) {
			exec(t, d.Platform(), `UPDATE admin_call SET created_at = created_at - $1`, by.Microseconds())
		}
		dead, _, err := s.Begin(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		age(4 * time.Minute)
		_, _, err = s.Begin(t.Context(), request)
		wantErr(t, err, tenancy.ErrInProgress)
		age(2 * time.Minute)
		heir, _, err := s.Begin(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if err := heir.Finish(t.Context(), tenancy.Answer{Status: 200}); err != nil {
			t.Fatal(err)
		}
		if err := dead.Finish(t.Context(), tenancy.Answer{Status: 500}); err != nil {
			t.Fatal(err)
		}
		_, answer, err := s.Begin(t.Context(), request)
		if err != nil || answer == nil || answer.Status != 200 {
			t.Errorf("answer %v, %v, want that of the heir", answer, err)
		}
		age(25 * time.Hour)
		other := request
		other.Body = []byte("x")
		if c, answer, err := s.Begin(t.Context(), other); c == nil || answer != nil || err != nil {
			t.Errorf("after a day: claim %v, answer %v, %v", c, answer, err)
		}
	})
}

// TestBeginRace sends one request many times at once: one is carried out.
func TestBeginRace(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		services := []*tenancy.Service{service(t, d), service(t, d)}
		var wg sync.WaitGroup
		var mu sync.Mutex
		claims := 0
		for i := range 20 {
			wg.Go(func() {
				c, _, err := services[i%2].Begin(t.Context(), tenancy.Request{Actor: "ana", Key: "k"})
				if err != nil && !errors.Is(err, tenancy.ErrInProgress) {
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
