package runtimecache_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/router"
	"stoa/tenancy/runtimecache"
	"stoa/tenancy/signal"
	"stoa/tenancy/tenancytest"
)

// TestConvergeSilently changes apps in one process; another without signals must follow within two seconds.
func TestConvergeSilently(t *testing.T) {
	inSynctest(t, func(t *testing.T, here *tenancy.Service, d *db.DB) {
		there := tenancytest.NewService(t, d)
		l := newTestCache(t, there, nil, runtimecache.Options{})
		r := newRouter(t, there)
		app := tenancytest.CreateApp(t, here, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		gone := tenancytest.CreateApp(t, here, tenancy.Draft{Name: "gone"})
		many := make([]db.ID, 60)
		for i := range many {
			many[i] = tenancytest.CreateApp(t, here, tenancy.Draft{Name: fmt.Sprintf("m%d", i)}).ID
		}
		for _, id := range append(many, app.ID, gone.ID) {
			if _, err := acquireConfig(t, l, id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := here.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		for i := range many {
			if _, err := here.SuspendApp(t.Context(), tenancytest.Actor, fmt.Sprintf("m%d", i), ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := here.DeleteApp(t.Context(), tenancytest.Actor, "gone"); err != nil {
			t.Fatal(err)
		}
		probe := func(id db.ID, name string) error {
			v := router.AppRequest{Discovery: true, Address: r.ParseAddress("", "/apps/"+name+"/agents")}
			got, err := r.FindApp(t.Context(), &v)
			if err == nil && got != id {
				t.Errorf("%s is %s, want %s", name, got, id)
			}
			return err
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if config, err := acquireConfig(t, l, app.ID); err != nil || config != `{"n":2}` {
			t.Errorf("the changed app is %s, %v", config, err)
		}
		for _, id := range many {
			_, err := acquireConfig(t, l, id)
			tenancytest.WantErr(t, err, tenancy.ErrSuspended)
		}
		_, err := acquireConfig(t, l, gone.ID)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		tenancytest.WantErr(t, probe("", "gone"), agentsvc.CodeNotFound)
		again := tenancytest.CreateApp(t, here, tenancy.Draft{Name: "gone"})
		time.Sleep(2 * time.Second)
		tenancytest.WantErr(t, probe(again.ID, "gone"), nil)
	})
}

// TestConverge runs two processes on one PostgreSQL with signals: each follows the other's changes at once.
func TestConverge(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t)
	process := func() (*tenancy.Service, *testCache) {
		d, err := db.Open(t.Context(), url, db.Options{MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		bus := signal.New(signal.NewPostgresLink(url), nil)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = bus.Run(ctx)
		}()
		t.Cleanup(func() {
			cancel()
			<-done
		})
		s := tenancy.New(d, tenancytest.NewKeyring(t, tenancytest.MasterKey), bus, tenancytest.NewOptions())
		return s, newTestCache(t, s, nil, runtimecache.Options{CheckInterval: time.Hour})
	}
	here, _ := process()
	there, l := process()
	app := tenancytest.CreateApp(t, here, tenancy.Draft{Name: "acme", Config: []byte(`{"n":0}`)})
	if _, err := there.LoadApp(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		config := fmt.Sprintf(`{"n":%d}`, i+1)
		if _, err := acquireConfig(t, l, app.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := here.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(config)}, false); err != nil {
			t.Fatal(err)
		}
		dbtest.WaitUntil(t, "followed", func() bool {
			got, err := acquireConfig(t, l, app.ID)
			return err == nil && got == config
		})
	}
}

// TestStorm calls and changes apps concurrently: no caller ever gets a closed value, and all values are closed at the
// end.
func TestStorm(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	s, other := tenancytest.NewService(t, d), tenancytest.NewService(t, d)
	b := &runtimeBuilder{}
	l := newTestCache(t, s, b, runtimecache.Options{MaxEntries: 3, CheckInterval: 5 * time.Millisecond, FailureTTL: time.Millisecond, IdleTimeout: 20 * time.Millisecond})
	var ids []db.ID
	for i := range 6 {
		ids = append(ids, tenancytest.CreateApp(t, s, tenancy.Draft{Name: fmt.Sprintf("a%d", i)}).ID)
	}
	rounds := 300
	if os.Getenv("STOA_TEST_LONG") != "" {
		rounds = 5000
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range rounds {
				id := ids[(w*7+i)%len(ids)]
				h, _, release, err := l.Acquire(t.Context(), id)
				if err != nil {
					t.Errorf("acquire: %v", err)
				}
				if h != nil && h.closed.Load() != 0 {
					t.Error("a closed value is held")
				}
				release()
			}
		})
	}
	for w, by := range []*tenancy.Service{s, other} {
		wg.Go(func() {
			for i := range rounds / 10 {
				name := fmt.Sprintf("a%d", (i+w)%len(ids))
				if err := by.Secrets.Store(t.Context(), tenancytest.Actor, name, "S", fmt.Sprint(i), tenancy.Precondition{}); err != nil {
					t.Errorf("change: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func newRouter(t *testing.T, s *tenancy.Service) *router.Router {
	t.Helper()
	r, err := router.New(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}
