package tenancy_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/signal"
)

// TestConvergeSilently changes apps in one process; another that hears nothing of it follows within two seconds.
func TestConvergeSilently(t *testing.T) {
	bubble(t, func(t *testing.T, here *tenancy.Service, d *db.DB) {
		there := service(t, d)
		l := house(t, there, nil, tenancy.LiveOptions{})
		r := router(t, there)
		app := create(t, here, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		gone := create(t, here, tenancy.Draft{Name: "gone"})
		many := make([]db.ID, 60)
		for i := range many {
			many[i] = create(t, here, tenancy.Draft{Name: fmt.Sprintf("m%d", i)}).ID
		}
		for _, id := range append(many, app.ID, gone.ID) {
			if _, err := visit(t, l, id); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := here.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		for i := range many {
			if _, err := here.Suspend(t.Context(), actor, fmt.Sprintf("m%d", i), ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := here.Delete(t.Context(), actor, "gone"); err != nil {
			t.Fatal(err)
		}
		look := func(id db.ID, name string) error {
			v := tenancy.Visit{Discovery: true, Address: r.Address("", "/apps/"+name+"/agents")}
			got, err := r.Route(t.Context(), &v)
			if err == nil && got != id {
				t.Errorf("%s is %s, want %s", name, got, id)
			}
			return err
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if config, err := visit(t, l, app.ID); err != nil || config != `{"n":2}` {
			t.Errorf("the changed app is %s, %v", config, err)
		}
		for _, id := range many {
			_, err := visit(t, l, id)
			wantErr(t, err, tenancy.ErrSuspended)
		}
		_, err := visit(t, l, gone.ID)
		wantErr(t, err, tenancy.ErrNotFound)
		wantErr(t, look("", "gone"), tenancy.ErrNotFound)
		again := create(t, here, tenancy.Draft{Name: "gone"})
		time.Sleep(2 * time.Second)
		wantErr(t, look(again.ID, "gone"), nil)
	})
}

// TestConverge has two processes on one PostgreSQL that signal each other: one follows the other's changes at once.
func TestConverge(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	process := func() (*tenancy.Service, *liveHomes) {
		d, err := db.Open(t.Context(), url, db.Options{MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		bus := signal.New(signal.Postgres(url), nil)
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
		s := tenancy.New(d, keyring(t, masterKey), bus, options())
		return s, house(t, s, nil, tenancy.LiveOptions{Check: time.Hour})
	}
	here, _ := process()
	there, l := process()
	app := create(t, here, tenancy.Draft{Name: "acme", Config: []byte(`{"n":0}`)})
	if _, err := there.Get(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		config := fmt.Sprintf(`{"n":%d}`, i+1)
		if _, err := visit(t, l, app.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := here.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(config)}, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "followed", func() bool {
			got, err := visit(t, l, app.ID)
			return err == nil && got == config
		})
	}
}

// TestStorm calls and changes apps from many sides at once: no caller ever holds a closed value, and all are closed in
// the end.
func TestStorm(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	s, other := service(t, d), service(t, d)
	b := &builder{}
	l := house(t, s, b, tenancy.LiveOptions{Max: 3, Check: 5 * time.Millisecond, Failure: time.Millisecond, Idle: 20 * time.Millisecond})
	var ids []db.ID
	for i := range 6 {
		ids = append(ids, create(t, s, tenancy.Draft{Name: fmt.Sprintf("a%d", i)}).ID)
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
				if err := by.PutSecret(t.Context(), actor, name, "S", fmt.Sprint(i)); err != nil {
					t.Errorf("change: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
