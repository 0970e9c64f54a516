package tenancy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/grant"
)

// bubble runs f on SQLite in a bubble with its own time.
func bubble(t *testing.T, f func(t *testing.T, s *tenancy.Service, d *db.DB)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		f(t, service(t, d), d)
	})
}

// TestFirstCalls sends a thousand first calls to one app: one build serves them.
func TestFirstCalls(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{hook: func(context.Context, *tenancy.Snapshot) error {
			time.Sleep(time.Second)
			return nil
		}}
		l := house(t, s, b, tenancy.LiveOptions{})
		app := create(t, s, tenancy.Draft{Name: "acme"})
		homes := make([]*home, 1000)
		var wg sync.WaitGroup
		for i := range homes {
			wg.Go(func() {
				h, _, release, err := l.Acquire(t.Context(), app.ID)
				homes[i] = h
				wantErr(t, err, nil)
				release()
			})
		}
		wg.Wait()
		for _, h := range homes {
			if h != homes[0] {
				t.Fatal("two calls got different values")
			}
		}
		if n := b.count(); n != 1 {
			t.Errorf("%d builds, want 1", n)
		}
	})
}

// TestHang builds an app that hangs and heeds nothing: other apps do not wait, its callers get an answer, and what
// comes of it too late is closed.
func TestHang(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		let := make(chan struct{})
		b := &builder{hook: func(_ context.Context, s *tenancy.Snapshot) error {
			if s.App.Name == "stuck" {
				<-let
			}
			return nil
		}}
		l := house(t, s, b, tenancy.LiveOptions{BuildTimeout: 10 * time.Second})
		stuck, acme := create(t, s, tenancy.Draft{Name: "stuck"}), create(t, s, tenancy.Draft{Name: "acme"})
		var wg sync.WaitGroup
		wg.Go(func() {
			start := time.Now()
			_, err := visit(t, l, stuck.ID)
			wantErr(t, err, tenancy.ErrUnavailable)
			if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
				t.Errorf("the answer took %v, want the build's deadline", took)
			}
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, _, _, err := l.Acquire(ctx, stuck.ID)
			wantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took != time.Second {
				t.Errorf("a caller who stopped waiting after 1s waited %v", took)
			}
		})
		synctest.Wait()
		start := time.Now()
		if _, err := visit(t, l, acme.ID); err != nil || time.Since(start) != 0 {
			t.Errorf("the other app took %v, %v", time.Since(start), err)
		}
		wg.Wait()
		time.Sleep(time.Minute)
		_, err := visit(t, l, stuck.ID)
		wantErr(t, err, tenancy.ErrUnavailable)
		if n := b.count(); n != 2 {
			t.Errorf("%d builds were begun while one hangs, want 2 with the other app's", n)
		}
		close(let)
		synctest.Wait()
		if n := b.open(t); n != 1 {
			t.Errorf("%d values are open after the late one came, want the other app's", n)
		}
		time.Sleep(2 * time.Second)
		if _, err := visit(t, l, stuck.ID); err != nil {
			t.Errorf("once it does not hang: %v", err)
		}
	})
}

// TestSwap changes an app under its users: the next call has the new value, the old one is closed once, after its last
// user.
func TestSwap(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		l := house(t, s, b, tenancy.LiveOptions{})
		app := create(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		old, record, leave := enter(t, l, app.ID)
		same, _, leaveToo := enter(t, l, app.ID)
		if old != same || record.Revision != 1 {
			t.Fatalf("two calls got different values, or revision %d", record.Revision)
		}
		changes := map[string]func() error{
			`config`: func() error {
				_, err := s.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(`{"n":2}`)}, false)
				return err
			},
			`secret`: func() error { return s.PutSecret(t.Context(), actor, "acme", "S", "v") },
			`grants`: func() error {
				_, err := s.Update(t.Context(), actor, "acme", tenancy.Change{Grants: grant.Parse([]string{"command=/srv/acme"})}, false)
				return err
			},
			`restore`: func() error { _, err := s.Restore(t.Context(), actor, "acme", 1); return err },
		}
		last := old
		for i, name := range []string{"config", "secret", "grants", "restore"} {
			if err := changes[name](); err != nil {
				t.Fatal(err)
			}
			h, record, release := enter(t, l, app.ID)
			if h == last {
				t.Errorf("after %s: the old value", name)
			}
			if now, _ := s.Get(t.Context(), "acme"); record.Revision != now.Revision || record.Generation != now.Generation {
				t.Errorf("after %s: record %d/%d, want %d/%d", name, record.Revision, record.Generation, now.Revision, now.Generation)
			}
			last = h
			release()
			synctest.Wait()
			if n := b.open(t); n != 2 || b.count() != i+2 {
				t.Errorf("after %s: %d of %d values are open, want the first and the newest", name, n, b.count())
			}
		}
		leave()
		leave()
		synctest.Wait()
		if old.closed.Load() != 0 {
			t.Error("closed under its last user, by a release called twice")
		}
		leaveToo()
		synctest.Wait()
		if n := old.closed.Load(); n != 1 {
			t.Errorf("closed %d times after its last user, want once", n)
		}
	})
}

// TestRecord changes what no build reads: the value stays and the record is new.
func TestRecord(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		var changed []int64
		l := house(t, s, b, tenancy.LiveOptions{Changed: func(a tenancy.App) { changed = append(changed, a.Generation) }})
		app := create(t, s, tenancy.Draft{Name: "acme"})
		first, record, release := enter(t, l, app.ID)
		defer release()
		iat := record.IssueAt("ana", time.Now())
		if err := s.Revoke(t.Context(), actor, "acme", "ana"); err != nil {
			t.Fatal(err)
		}
		again, record, releaseToo := enter(t, l, app.ID)
		defer releaseToo()
		if again != first || b.count() != 1 {
			t.Error("a revocation built the app anew")
		}
		if !record.TooOld("ana", iat, 0) || record.TooOld("bob", iat, 0) {
			t.Error("the record does not have the mark")
		}
		if len(changed) != 1 || changed[0] != 2 {
			t.Errorf("told of generations %v, want 2", changed)
		}
	})
}

func TestLiveSuspend(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		var told []tenancy.Status
		l := house(t, s, b, tenancy.LiveOptions{Changed: func(a tenancy.App) { told = append(told, a.Status) }})
		app, cold := create(t, s, tenancy.Draft{Name: "acme"}), create(t, s, tenancy.Draft{Name: "cold"})
		h, _, release := enter(t, l, app.ID)
		for _, name := range []string{"acme", "cold"} {
			if _, err := s.Suspend(t.Context(), actor, name, ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range []tenancy.App{app, cold} {
			_, record, release, err := l.Acquire(t.Context(), a.ID)
			release()
			wantErr(t, err, tenancy.ErrSuspended)
			if record == nil || record.Status != tenancy.Suspended || record.ID != a.ID {
				t.Errorf("%s: record %v beside the error", a.Name, record)
			}
		}
		if h.closed.Load() != 0 {
			t.Error("closed under its user")
		}
		release()
		synctest.Wait()
		if h.closed.Load() != 1 {
			t.Error("the value of a suspended app is not closed")
		}
		if _, err := s.Resume(t.Context(), actor, "acme", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := visit(t, l, app.ID); err != nil {
			t.Errorf("after the resume: %v", err)
		}
		if n := b.count(); n != 2 {
			t.Errorf("%d builds, want 2: none of a suspended app", n)
		}
		if err := s.Delete(t.Context(), actor, "acme"); err != nil {
			t.Fatal(err)
		}
		_, err := visit(t, l, app.ID)
		wantErr(t, err, tenancy.ErrNotFound)
		synctest.Wait()
		if n := b.open(t); n != 0 {
			t.Errorf("%d values of a deleted app are open", n)
		}
		if want := []tenancy.Status{tenancy.Suspended, tenancy.Active, tenancy.Deleting}; !slices.Equal(told, want) {
			t.Errorf("told of %v, want %v", told, want)
		}
	})
}

// TestUnknown asks for an app that is not there: the answer is remembered for a moment.
func TestUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, d *db.DB) {
		l := house(t, s, nil, tenancy.LiveOptions{Failure: time.Second})
		create(t, s, tenancy.Draft{Name: "acme"})
		_, err := visit(t, l, "ghost")
		wantErr(t, err, tenancy.ErrNotFound)
		exec(t, d.Platform(), `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels,
				data_key, master_key, created_at, updated_at)
			SELECT 'ghost', 'ghost', display_name, status, revision, inputs, generation, grants, plan, labels,
				data_key, master_key, created_at, updated_at FROM app`)
		_, err = visit(t, l, "ghost")
		wantErr(t, err, tenancy.ErrNotFound)
		time.Sleep(time.Second)
		exec(t, d.Platform(), `UPDATE app SET status = 'suspended' WHERE tenant = 'ghost'`)
		exec(t, d.Platform(), `INSERT INTO app_revision SELECT 'ghost', revision, config, actor, created_at FROM app_revision`)
		if _, err = visit(t, l, "ghost"); errors.Is(err, tenancy.ErrNotFound) {
			t.Error("the answer is remembered for longer than that")
		}
	})
}

func TestBuildFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		refuse := func(context.Context, *tenancy.Snapshot) error { return errBuild }
		b := &builder{hook: refuse}
		l := house(t, s, b, tenancy.LiveOptions{Failure: time.Second})
		app := create(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		builds := func(want int, when string) {
			t.Helper()
			if n := b.count(); n != want {
				t.Errorf("%s: %d builds, want %d", when, n, want)
			}
		}
		for range 5 {
			_, err := visit(t, l, app.ID)
			wantErr(t, err, tenancy.ErrUnavailable)
			wantErr(t, err, errBuild)
		}
		builds(1, "within a second")
		time.Sleep(time.Second)
		_, err := visit(t, l, app.ID)
		wantErr(t, err, errBuild)
		builds(2, "after a second")
		b.set(nil)
		if err := s.PutSecret(t.Context(), actor, "acme", "S", "cure"); err != nil {
			t.Fatal(err)
		}
		if _, err := visit(t, l, app.ID); err != nil {
			t.Errorf("after the app changed: %v", err)
		}
		builds(3, "after the app changed")

		b.set(refuse)
		if _, err := s.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if config, err := visit(t, l, app.ID); err != nil || config != `{"n":1}` {
				t.Errorf("while the new revision fails: %s, %v, want the old one", config, err)
			}
		}
		builds(4, "while the new revision fails")
		time.Sleep(time.Minute)
		if n := b.count(); n < 6 || n > 12 {
			t.Errorf("%d builds after a minute of failing, want a few, further and further apart", n)
		}
		if err := s.Revoke(t.Context(), actor, "acme", "ana"); err != nil {
			t.Fatal(err)
		}
		_, record, release := enter(t, l, app.ID)
		release()
		if !record.TooOld("ana", time.Now(), 0) || record.Revision != 1 {
			t.Errorf("the old revision's record is at %d, want 1 with the new mark", record.Revision)
		}
		b.set(nil)
		time.Sleep(time.Minute)
		if config, err := visit(t, l, app.ID); err != nil || config != `{"n":2}` {
			t.Errorf("once it builds: %s, %v, want the new revision", config, err)
		}
	})
}

func TestBuildPanics(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		l := house(t, s, b, tenancy.LiveOptions{})
		app := create(t, s, tenancy.Draft{Name: "acme"})
		b.set(func(context.Context, *tenancy.Snapshot) error {
			b.built[0].closed.Add(1)
			panic("boom")
		})
		_, err := visit(t, l, app.ID)
		wantErr(t, err, tenancy.ErrUnavailable)
		b.set(nil)
		time.Sleep(time.Second)
		if _, err := visit(t, l, app.ID); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowChange builds a change slowly: callers wait for it a moment, then the old value serves.
func TestSlowChange(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		l := house(t, s, b, tenancy.LiveOptions{Patience: time.Second})
		app := create(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		if _, err := visit(t, l, app.ID); err != nil {
			t.Fatal(err)
		}
		b.set(func(context.Context, *tenancy.Snapshot) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		if _, err := s.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			config string
			took   time.Duration
		}{{`{"n":1}`, time.Second}, {`{"n":1}`, time.Second}, {`{"n":1}`, time.Second}, {`{"n":1}`, time.Second}, {`{"n":2}`, time.Second}, {`{"n":2}`, 0}} {
			start := time.Now()
			config, err := visit(t, l, app.ID)
			if took := time.Since(start); err != nil || config != want.config && took < time.Second || took > want.took {
				t.Errorf("got %s after %v, %v, want %s after %v", config, took, err, want.config, want.took)
			}
		}
	})
}

func TestEvict(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		var loads, evictions atomic.Int64
		l := house(t, s, b, tenancy.LiveOptions{Max: 4, Idle: time.Hour, Evicted: func() { evictions.Add(1) },
			Loaded: func(took time.Duration, err error) { loads.Add(1) }})
		var apps []tenancy.App
		for i := range 10 {
			apps = append(apps, create(t, s, tenancy.Draft{Name: fmt.Sprintf("a%d", i)}))
		}
		held, _, release := enter(t, l, apps[0].ID)
		for _, app := range apps {
			time.Sleep(time.Second)
			if _, err := visit(t, l, app.ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := b.open(t); n != 4 || held.closed.Load() != 0 {
			t.Errorf("%d values are kept, want 4 with the one in use", n)
		}
		builds := b.count()
		for _, i := range []int{0, 7, 8, 9} {
			if _, err := visit(t, l, apps[i].ID); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.count(); n != builds {
			t.Errorf("%d of the last used were built anew", n-builds)
		}
		for i := range 50 { // apps that are not there do not displace those that are
			_, _ = visit(t, l, db.ID(fmt.Sprintf("ghost-%d", i)))
		}
		synctest.Wait()
		if n := b.open(t); n < 3 {
			t.Errorf("%d values are left after calls to unknown apps", n)
		}
		time.Sleep(2 * time.Hour)
		if n := b.open(t); n != 1 || held.closed.Load() != 0 {
			t.Errorf("%d values are open after two idle hours, want the one in use", n)
		}
		release()
		time.Sleep(2 * time.Hour)
		if n := b.open(t); n != 0 {
			t.Errorf("%d values are open after all are idle", n)
		}
		if n := int64(b.count()); loads.Load() != n || evictions.Load() != n || l.Len() != 0 {
			t.Errorf("told of %d loads and %d evictions, and %d are held: %d were built", loads.Load(), evictions.Load(), l.Len(), n)
		}
	})
}

func TestAt(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		l := house(t, s, b, tenancy.LiveOptions{Idle: time.Hour})
		app := create(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`), Secrets: map[string]string{"S": "v1"}})
		if _, err := s.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		at := func(revision int64) *home {
			t.Helper()
			h, record, release, err := l.At(t.Context(), app.ID, revision)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if want := fmt.Sprintf(`{"n":%d}`, revision); h.config != want || record.Revision != revision {
				t.Errorf("at %d: %s of revision %d", revision, h.config, record.Revision)
			}
			return h
		}
		current, _, release := enter(t, l, app.ID)
		release()
		if at(2) != current {
			t.Error("the current revision was built twice")
		}
		first := at(1)
		if at(1) != first {
			t.Error("the older revision was built twice")
		}
		if _, err := s.Update(t.Context(), actor, "acme", tenancy.Change{Config: []byte(`{"n":3}`)}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if at(1) != first {
			t.Error("the older revision was built anew for another revision's sake")
		}
		if err := s.PutSecret(t.Context(), actor, "acme", "S", "v2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if h := at(1); h == first || h.secret != "v2" {
			t.Errorf("the older revision has secret %s, want v2", h.secret)
		}
		_, _, _, err := l.At(t.Context(), app.ID, 9)
		wantErr(t, err, tenancy.ErrNotFound)
		_, _, _, err = l.At(t.Context(), "ghost", 1)
		wantErr(t, err, tenancy.ErrNotFound)
		time.Sleep(3 * time.Hour)
		if n := b.open(t); n != 0 {
			t.Errorf("%d values are open after all are idle", n)
		}
	})
}

func TestLiveDefault(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &builder{}
		l := house(t, s, b, tenancy.LiveOptions{})
		_, err := visit(t, l, tenancy.DefaultID)
		wantErr(t, err, tenancy.ErrNotFound)
		for _, config := range []string{`{"n":1}`, `{"n":2}`} {
			s.SetDefault("", []byte(config))
			if got, err := visit(t, l, tenancy.DefaultID); err != nil || got != config {
				t.Errorf("got %s, %v, want %s", got, err, config)
			}
		}
		if err := s.Revoke(t.Context(), actor, "default", ""); err != nil {
			t.Fatal(err)
		}
		_, record, release, err := l.At(t.Context(), tenancy.DefaultID, 1)
		release()
		if err != nil || record.Revision != 2 || !record.TooOld("ana", time.Now(), 0) {
			t.Errorf("record %+v, %v, want the current one with its mark", record, err)
		}
		time.Sleep(5 * time.Second)
		if n := b.count(); n != 2 {
			t.Errorf("%d builds, want 2", n)
		}
	})
}

// TestSuccession changes an app again and again as soon as the last change is built: no build that is over stands in the way of
// the next.
func TestSuccession(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		l := house(t, s, nil, tenancy.LiveOptions{})
		for n := range 1000 {
			config := fmt.Sprintf(`{"n":%d}`, n)
			s.SetDefault("", []byte(config))
			if got, err := visit(t, l, tenancy.DefaultID); err != nil || got != config {
				t.Fatalf("got %s, %v, want %s", got, err, config)
			}
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := service(t, dbtest.SQLite(t))
	b := &builder{}
	l := tenancy.NewLive(s, b.build, tenancy.LiveOptions{})
	app := create(t, s, tenancy.Draft{Name: "acme"})
	h, _, release := enter(t, l, app.ID)
	l.Close()
	if h.closed.Load() != 0 {
		t.Error("closed under its user")
	}
	for _, id := range []db.ID{app.ID, "other"} {
		_, err := visit(t, l, id)
		wantErr(t, err, tenancy.ErrClosed)
	}
	release()
	if n := b.open(t); n != 0 || h.closed.Load() != 1 {
		t.Errorf("%d values are open after the last release", n)
	}
}

func TestAcquireAllocates(t *testing.T) {
	s := service(t, dbtest.SQLite(t))
	l := house(t, s, nil, tenancy.LiveOptions{})
	app := create(t, s, tenancy.Draft{Name: "acme"})
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		_, _, release, err := l.Acquire(ctx, app.ID)
		if err != nil {
			t.Fatal(err)
		}
		release()
	})
	if n > 2 {
		t.Errorf("%v allocations a call, want the release's 2 at most", n)
	}
}

// TestSuspendedBeforeTold: when the set tells that an app is suspended or gone, nobody acquires a value of it any more: what
// began before is there to be stopped, what begins afterwards finds out.
func TestSuspendedBeforeTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		var l *tenancy.Live[*home]
		var mu sync.Mutex
		found := map[tenancy.Status]error{}
		outcome := func(status tenancy.Status) (error, bool) {
			mu.Lock()
			defer mu.Unlock()
			err, told := found[status]
			return err, told
		}
		l = house(t, s, &builder{}, tenancy.LiveOptions{Changed: func(a tenancy.App) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_, _, release, err := l.Acquire(ctx, a.ID) // as a run does that begins now
			release()
			mu.Lock()
			defer mu.Unlock()
			found[a.Status] = err
		}})
		app := create(t, s, tenancy.Draft{Name: "acme"})
		_, _, release := enter(t, l, app.ID)
		release()
		if _, err := s.Suspend(t.Context(), actor, "acme", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, err := s.Resume(t.Context(), actor, "acme", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		err, _ := outcome(tenancy.Suspended)
		wantErr(t, err, tenancy.ErrSuspended)
		if err, told := outcome(tenancy.Active); !told || err != nil {
			t.Errorf("told of the resume %v, acquired: %v", told, err)
		}
		if err := s.Delete(t.Context(), actor, "acme"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err, told := outcome(tenancy.Deleting); !told || err == nil {
			t.Errorf("told of the deletion %v, acquired: %v", told, err)
		}
	})
}
