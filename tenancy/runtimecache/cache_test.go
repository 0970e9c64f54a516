package runtimecache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
	"stoa/tenancy/runtimecache"
	"stoa/tenancy/tenancytest"
)

// inSynctest runs f on SQLite in a synctest bubble.
func inSynctest(t *testing.T, f func(t *testing.T, s *tenancy.Service, d *db.DB)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.NewSQLite(t)
		f(t, tenancytest.NewService(t, d), d)
	})
}

// TestFirstCalls sends a thousand first calls to one app: they share one build.
func TestFirstCalls(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{hook: func(context.Context, *tenancy.Snapshot) error {
			time.Sleep(time.Second)
			return nil
		}}
		l := newTestCache(t, s, b, runtimecache.Options{})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		runtimes := make([]*testRuntime, 1000)
		var wg sync.WaitGroup
		for i := range runtimes {
			wg.Go(func() {
				h, _, release, err := l.Acquire(t.Context(), app.ID)
				runtimes[i] = h
				tenancytest.WantErr(t, err, nil)
				release()
			})
		}
		wg.Wait()
		for _, h := range runtimes {
			if h != runtimes[0] {
				t.Fatal("two calls got different values")
			}
		}
		if n := b.countBuilt(); n != 1 {
			t.Errorf("%d builds, want 1", n)
		}
	})
}

// TestHang builds an app that ignores its context and hangs: other apps do not wait, its callers get an error, and a
// value that arrives too late is closed.
func TestHang(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		let := make(chan struct{})
		b := &runtimeBuilder{hook: func(_ context.Context, s *tenancy.Snapshot) error {
			if s.App.Name == "stuck" {
				<-let
			}
			return nil
		}}
		l := newTestCache(t, s, b, runtimecache.Options{BuildTimeout: 10 * time.Second})
		stuck, acme := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "stuck"}), tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		var wg sync.WaitGroup
		wg.Go(func() {
			start := time.Now()
			_, err := acquireConfig(t, l, stuck.ID)
			tenancytest.WantErr(t, err, runtimecache.ErrUnavailable)
			if took := time.Since(start); took < 10*time.Second || took > 12*time.Second {
				t.Errorf("the answer took %v, want the build's deadline", took)
			}
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, _, _, err := l.Acquire(ctx, stuck.ID)
			tenancytest.WantErr(t, err, context.DeadlineExceeded)
			if took := time.Since(start); took != time.Second {
				t.Errorf("a caller who stopped waiting after 1s waited %v", took)
			}
		})
		synctest.Wait()
		start := time.Now()
		if _, err := acquireConfig(t, l, acme.ID); err != nil || time.Since(start) != 0 {
			t.Errorf("the other app took %v, %v", time.Since(start), err)
		}
		wg.Wait()
		time.Sleep(time.Minute)
		_, err := acquireConfig(t, l, stuck.ID)
		tenancytest.WantErr(t, err, runtimecache.ErrUnavailable)
		if n := b.countBuilt(); n != 2 {
			t.Errorf("%d builds were begun while one hangs, want 2 with the other app's", n)
		}
		close(let)
		synctest.Wait()
		if n := b.countOpen(t); n != 1 {
			t.Errorf("%d values are open after the late one came, want the other app's", n)
		}
		time.Sleep(2 * time.Second)
		if _, err := acquireConfig(t, l, stuck.ID); err != nil {
			t.Errorf("once it does not hang: %v", err)
		}
	})
}

// TestSwap changes an app in use: the next call gets the new value, and the old one is closed once, after its last
// user.
func TestSwap(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		l := newTestCache(t, s, b, runtimecache.Options{})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		old, record, releaseFirst := acquireRuntime(t, l, app.ID)
		same, _, releaseSecond := acquireRuntime(t, l, app.ID)
		if old != same || record.Revision != 1 {
			t.Fatalf("two calls got different values, or revision %d", record.Revision)
		}
		changes := map[string]func() error{
			`config`: func() error {
				_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(`{"n":2}`)}, false)
				return err
			},
			`secret`: func() error {
				return s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "v", tenancy.Precondition{})
			},
			`grants`: func() error {
				_, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Grants: grant.ParseList([]string{"command=/srv/acme"})}, false)
				return err
			},
			`restore`: func() error {
				_, err := s.Revisions.Restore(t.Context(), tenancytest.Actor, "acme", 1, false, tenancy.Precondition{})
				return err
			},
		}
		last := old
		for i, name := range []string{"config", "secret", "grants", "restore"} {
			if err := changes[name](); err != nil {
				t.Fatal(err)
			}
			h, record, release := acquireRuntime(t, l, app.ID)
			if h == last {
				t.Errorf("after %s: the old value", name)
			}
			if now, _ := s.LoadApp(t.Context(), "acme"); record.Revision != now.Revision || record.Generation != now.Generation {
				t.Errorf("after %s: record %d/%d, want %d/%d", name, record.Revision, record.Generation, now.Revision, now.Generation)
			}
			last = h
			release()
			synctest.Wait()
			if n := b.countOpen(t); n != 2 || b.countBuilt() != i+2 {
				t.Errorf("after %s: %d of %d values are open, want the first and the newest", name, n, b.countBuilt())
			}
		}
		releaseFirst()
		releaseFirst()
		synctest.Wait()
		if old.closed.Load() != 0 {
			t.Error("closed under its last user, by a release called twice")
		}
		releaseSecond()
		synctest.Wait()
		if n := old.closed.Load(); n != 1 {
			t.Errorf("closed %d times after its last user, want once", n)
		}
	})
}

// TestRecord changes fields that no build reads: the value stays and the record is new.
func TestRecord(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		var changed []int64
		l := newTestCache(t, s, b, runtimecache.Options{OnChange: func(a tenancy.App) { changed = append(changed, a.Generation) }})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		first, record, release := acquireRuntime(t, l, app.ID)
		defer release()
		iat := record.TokenIssueTime("ana", time.Now())
		if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, "acme", "ana"); err != nil {
			t.Fatal(err)
		}
		again, record, releaseToo := acquireRuntime(t, l, app.ID)
		defer releaseToo()
		if again != first || b.countBuilt() != 1 {
			t.Error("a revocation built the app anew")
		}
		if !record.IsTokenRevoked("ana", iat, 0) || record.IsTokenRevoked("bob", iat, 0) {
			t.Error("the record does not have the mark")
		}
		if len(changed) != 1 || changed[0] != 2 {
			t.Errorf("reported generations %v, want 2", changed)
		}
	})
}

func TestCacheSuspend(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		var reported []tenancy.Status
		l := newTestCache(t, s, b, runtimecache.Options{OnChange: func(a tenancy.App) { reported = append(reported, a.Status) }})
		app, cold := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"}), tenancytest.CreateApp(t, s, tenancy.Draft{Name: "cold"})
		h, _, release := acquireRuntime(t, l, app.ID)
		for _, name := range []string{"acme", "cold"} {
			if _, err := s.SuspendApp(t.Context(), tenancytest.Actor, name, ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, a := range []tenancy.App{app, cold} {
			_, record, release, err := l.Acquire(t.Context(), a.ID)
			release()
			tenancytest.WantErr(t, err, tenancy.ErrSuspended)
			if record == nil || record.Status != tenancy.Suspended || record.ID != a.ID {
				t.Errorf("%s: record %v with the error", a.Name, record)
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
		if _, err := s.ResumeApp(t.Context(), tenancytest.Actor, "acme", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := acquireConfig(t, l, app.ID); err != nil {
			t.Errorf("after the resume: %v", err)
		}
		if n := b.countBuilt(); n != 2 {
			t.Errorf("%d builds, want 2: none of a suspended app", n)
		}
		if err := s.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
			t.Fatal(err)
		}
		_, err := acquireConfig(t, l, app.ID)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		synctest.Wait()
		if n := b.countOpen(t); n != 0 {
			t.Errorf("%d values of a deleted app are open", n)
		}
		if want := []tenancy.Status{tenancy.Suspended, tenancy.Active, tenancy.Deleting}; !slices.Equal(reported, want) {
			t.Errorf("reported %v, want %v", reported, want)
		}
	})
}

// TestUnknown asks for an app that does not exist: the error is cached for a moment.
func TestUnknown(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, d *db.DB) {
		l := newTestCache(t, s, nil, runtimecache.Options{FailureTTL: time.Second})
		tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		_, err := acquireConfig(t, l, "ghost")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		tenancytest.ExecSQL(t, d.Platform(), `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels,
				data_key, master_key, created_at, updated_at)
			SELECT 'ghost', 'ghost', display_name, status, revision, inputs, generation, grants, plan, labels,
				data_key, master_key, created_at, updated_at FROM app`)
		_, err = acquireConfig(t, l, "ghost")
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		time.Sleep(time.Second)
		tenancytest.ExecSQL(t, d.Platform(), `UPDATE app SET status = 'suspended' WHERE tenant = 'ghost'`)
		tenancytest.ExecSQL(t, d.Platform(), `INSERT INTO app_revision SELECT 'ghost', revision, config, actor, created_at FROM app_revision`)
		if _, err = acquireConfig(t, l, "ghost"); errors.Is(err, agentsvc.CodeNotFound) {
			t.Error("the answer is remembered for longer than that")
		}
	})
}

func TestBuildFails(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		refuse := func(context.Context, *tenancy.Snapshot) error { return errBuild }
		b := &runtimeBuilder{hook: refuse}
		var log bytes.Buffer
		l := newTestCache(t, s, b, runtimecache.Options{FailureTTL: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		builds := func(want int, when string) {
			t.Helper()
			if n := b.countBuilt(); n != want {
				t.Errorf("%s: %d builds, want %d", when, n, want)
			}
		}
		for range 5 {
			_, err := acquireConfig(t, l, app.ID)
			tenancytest.WantErr(t, err, runtimecache.ErrUnavailable)
			tenancytest.WantErr(t, err, errBuild)
		}
		if !strings.Contains(log.String(), `msg="app cannot be loaded" app=acme `) || l.AppName(app.ID) != "acme" {
			t.Errorf("the app is called %q, and the log says %s", l.AppName(app.ID), log.String())
		}
		builds(1, "within a second")
		time.Sleep(time.Second)
		_, err := acquireConfig(t, l, app.ID)
		tenancytest.WantErr(t, err, errBuild)
		builds(2, "after a second")
		b.setHook(nil)
		if err := s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "cure", tenancy.Precondition{}); err != nil {
			t.Fatal(err)
		}
		if _, err := acquireConfig(t, l, app.ID); err != nil {
			t.Errorf("after the app changed: %v", err)
		}
		builds(3, "after the app changed")

		b.setHook(refuse)
		if _, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if config, err := acquireConfig(t, l, app.ID); err != nil || config != `{"n":1}` {
				t.Errorf("while the new revision fails: %s, %v, want the old one", config, err)
			}
		}
		builds(4, "while the new revision fails")
		time.Sleep(time.Minute)
		if n := b.countBuilt(); n < 6 || n > 12 {
			t.Errorf("%d builds after a minute of failing, want a few, further and further apart", n)
		}
		if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, "acme", "ana"); err != nil {
			t.Fatal(err)
		}
		_, record, release := acquireRuntime(t, l, app.ID)
		release()
		if !record.IsTokenRevoked("ana", time.Now(), 0) || record.Revision != 1 {
			t.Errorf("the old revision's record is at %d, want 1 with the new mark", record.Revision)
		}
		b.setHook(nil)
		time.Sleep(time.Minute)
		if config, err := acquireConfig(t, l, app.ID); err != nil || config != `{"n":2}` {
			t.Errorf("once it builds: %s, %v, want the new revision", config, err)
		}
	})
}

func TestBuildPanics(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		l := newTestCache(t, s, b, runtimecache.Options{})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		b.setHook(func(context.Context, *tenancy.Snapshot) error {
			b.built[0].closed.Add(1)
			panic("boom")
		})
		_, err := acquireConfig(t, l, app.ID)
		tenancytest.WantErr(t, err, runtimecache.ErrUnavailable)
		b.setHook(nil)
		time.Sleep(time.Second)
		if _, err := acquireConfig(t, l, app.ID); err != nil {
			t.Error(err)
		}
	})
}

// TestSlowChange builds a change slowly: callers wait for MaxChangeWait and then get the old value.
func TestSlowChange(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		l := newTestCache(t, s, b, runtimecache.Options{MaxChangeWait: time.Second})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`)})
		if _, err := acquireConfig(t, l, app.ID); err != nil {
			t.Fatal(err)
		}
		b.setHook(func(context.Context, *tenancy.Snapshot) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		if _, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		for _, want := range []struct {
			config string
			took   time.Duration
		}{{`{"n":1}`, time.Second}, {`{"n":1}`, time.Second}, {`{"n":1}`, time.Second}, {`{"n":1}`, time.Second}, {`{"n":2}`, time.Second}, {`{"n":2}`, 0}} {
			start := time.Now()
			config, err := acquireConfig(t, l, app.ID)
			if took := time.Since(start); err != nil || config != want.config && took < time.Second || took > want.took {
				t.Errorf("got %s after %v, %v, want %s after %v", config, took, err, want.config, want.took)
			}
		}
	})
}

// TestUnreadableAppIsCounted loads an app whose master key is missing: the hook that counts loads gets the failure.
func TestUnreadableAppIsCounted(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, d *db.DB) {
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		other := tenancy.New(d, tenancytest.NewKeyring(t, bytes.Repeat([]byte{9}, 32)), tenancytest.NewBus(), tenancytest.NewOptions())
		var failed atomic.Int64
		l := newTestCache(t, other, nil, runtimecache.Options{OnBuild: func(_ time.Duration, err error) {
			if err != nil {
				failed.Add(1)
			}
		}})
		if _, err := acquireConfig(t, l, app.ID); !errors.Is(err, keyring.ErrKeyMissing) || failed.Load() != 1 {
			t.Errorf("got %v and %d failed loads, want the missing key and 1", err, failed.Load())
		}
		tenancytest.WantErr(t, func() error { _, err := acquireConfig(t, l, "nobody"); return err }(), agentsvc.CodeNotFound)
		if failed.Load() != 1 {
			t.Errorf("an app that does not exist is counted: %d", failed.Load())
		}
	})
}

func TestEvict(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		var loads, evictions atomic.Int64
		l := newTestCache(t, s, b, runtimecache.Options{MaxEntries: 4, IdleTimeout: time.Hour, OnEvict: func() { evictions.Add(1) },
			OnBuild: func(took time.Duration, err error) { loads.Add(1) }})
		var apps []tenancy.App
		for i := range 10 {
			apps = append(apps, tenancytest.CreateApp(t, s, tenancy.Draft{Name: fmt.Sprintf("a%d", i)}))
		}
		inUse, _, release := acquireRuntime(t, l, apps[0].ID)
		for _, app := range apps {
			time.Sleep(time.Second)
			if _, err := acquireConfig(t, l, app.ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := b.countOpen(t); n != 4 || inUse.closed.Load() != 0 {
			t.Errorf("%d values are kept, want 4 with the one in use", n)
		}
		builds := b.countBuilt()
		for _, i := range []int{0, 7, 8, 9} {
			if _, err := acquireConfig(t, l, apps[i].ID); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.countBuilt(); n != builds {
			t.Errorf("%d of the last used were built anew", n-builds)
		}
		for i := range 50 { // entries without a value are evicted before those with one
			_, _ = acquireConfig(t, l, db.ID(fmt.Sprintf("ghost-%d", i)))
		}
		synctest.Wait()
		if n := b.countOpen(t); n < 3 {
			t.Errorf("%d values are left after calls to unknown apps", n)
		}
		time.Sleep(2 * time.Hour)
		if n := b.countOpen(t); n != 1 || inUse.closed.Load() != 0 {
			t.Errorf("%d values are open after two idle hours, want the one in use", n)
		}
		release()
		time.Sleep(2 * time.Hour)
		if n := b.countOpen(t); n != 0 {
			t.Errorf("%d values are open after all are idle", n)
		}
		if n := int64(b.countBuilt()); loads.Load() != n || evictions.Load() != n || l.Len() != 0 {
			t.Errorf("reported %d loads and %d evictions, and %d are held: %d were built", loads.Load(), evictions.Load(), l.Len(), n)
		}
	})
}

func TestAcquireRevision(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		l := newTestCache(t, s, b, runtimecache.Options{IdleTimeout: time.Hour})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme", Config: []byte(`{"n":1}`), Secrets: map[string]string{"S": "v1"}})
		if _, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(`{"n":2}`)}, false); err != nil {
			t.Fatal(err)
		}
		at := func(revision int64) *testRuntime {
			t.Helper()
			h, record, release, err := l.AcquireRevision(t.Context(), app.ID, revision)
			if err != nil {
				t.Fatal(err)
			}
			defer release()
			if want := fmt.Sprintf(`{"n":%d}`, revision); h.config != want || record.Revision != revision {
				t.Errorf("at %d: %s of revision %d", revision, h.config, record.Revision)
			}
			return h
		}
		current, _, release := acquireRuntime(t, l, app.ID)
		release()
		if at(2) != current {
			t.Error("the current revision was built twice")
		}
		first := at(1)
		if at(1) != first {
			t.Error("the older revision was built twice")
		}
		if _, err := s.UpdateApp(t.Context(), tenancytest.Actor, "acme", tenancy.AppChange{Config: []byte(`{"n":3}`)}, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if at(1) != first {
			t.Error("the older revision was built anew for another revision's sake")
		}
		if err := s.Secrets.Store(t.Context(), tenancytest.Actor, "acme", "S", "v2", tenancy.Precondition{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if h := at(1); h == first || h.secret != "v2" {
			t.Errorf("the older revision has secret %s, want v2", h.secret)
		}
		_, _, _, err := l.AcquireRevision(t.Context(), app.ID, 9)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		_, _, _, err = l.AcquireRevision(t.Context(), "ghost", 1)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		time.Sleep(3 * time.Hour)
		if n := b.countOpen(t); n != 0 {
			t.Errorf("%d values are open after all are idle", n)
		}
	})
}

func TestCacheDefault(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		b := &runtimeBuilder{}
		l := newTestCache(t, s, b, runtimecache.Options{})
		_, err := acquireConfig(t, l, tenancy.DefaultID)
		tenancytest.WantErr(t, err, agentsvc.CodeNotFound)
		for _, config := range []string{`{"n":1}`, `{"n":2}`} {
			s.DefaultApp.Set("", []byte(config))
			if got, err := acquireConfig(t, l, tenancy.DefaultID); err != nil || got != config {
				t.Errorf("got %s, %v, want %s", got, err, config)
			}
		}
		if err := s.Tokens.Revoke(t.Context(), tenancytest.Actor, "default", ""); err != nil {
			t.Fatal(err)
		}
		_, record, release, err := l.AcquireRevision(t.Context(), tenancy.DefaultID, 1)
		release()
		if err != nil || record.Revision != 2 || !record.IsTokenRevoked("ana", time.Now(), 0) {
			t.Errorf("record %+v, %v, want the current one with its mark", record, err)
		}
		time.Sleep(5 * time.Second)
		if n := b.countBuilt(); n != 2 {
			t.Errorf("%d builds, want 2", n)
		}
	})
}

// TestSuccession changes an app repeatedly, each time as soon as the last change is built: a completed build never
// blocks the next one.
func TestSuccession(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		l := newTestCache(t, s, nil, runtimecache.Options{})
		for n := range 1000 {
			config := fmt.Sprintf(`{"n":%d}`, n)
			s.DefaultApp.Set("", []byte(config))
			if got, err := acquireConfig(t, l, tenancy.DefaultID); err != nil || got != config {
				t.Fatalf("got %s, %v, want %s", got, err, config)
			}
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	b := &runtimeBuilder{}
	l := runtimecache.New(s, b.buildRuntime, runtimecache.Options{})
	app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
	h, _, release := acquireRuntime(t, l, app.ID)
	l.Close()
	if h.closed.Load() != 0 {
		t.Error("closed under its user")
	}
	for _, id := range []db.ID{app.ID, "other"} {
		_, err := acquireConfig(t, l, id)
		tenancytest.WantErr(t, err, runtimecache.ErrClosed)
	}
	release()
	if n := b.countOpen(t); n != 0 || h.closed.Load() != 1 {
		t.Errorf("%d values are open after the last release", n)
	}
}

func TestAcquireAllocates(t *testing.T) {
	s := tenancytest.NewService(t, dbtest.NewSQLite(t))
	l := newTestCache(t, s, nil, runtimecache.Options{})
	app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
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

// TestSuspendedBeforeOnChange checks the order of OnChange: when it reports that an app is suspended or deleted, no
// caller can acquire a value any more, and those that acquired one earlier can be stopped.
func TestSuspendedBeforeOnChange(t *testing.T) {
	inSynctest(t, func(t *testing.T, s *tenancy.Service, _ *db.DB) {
		var l *runtimecache.Cache[*testRuntime]
		var mu sync.Mutex
		found := map[tenancy.Status]error{}
		outcome := func(status tenancy.Status) (error, bool) {
			mu.Lock()
			defer mu.Unlock()
			err, reported := found[status]
			return err, reported
		}
		l = newTestCache(t, s, &runtimeBuilder{}, runtimecache.Options{OnChange: func(a tenancy.App) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			_, _, release, err := l.Acquire(ctx, a.ID) // as a run that starts now does
			release()
			mu.Lock()
			defer mu.Unlock()
			found[a.Status] = err
		}})
		app := tenancytest.CreateApp(t, s, tenancy.Draft{Name: "acme"})
		_, _, release := acquireRuntime(t, l, app.ID)
		release()
		if _, err := s.SuspendApp(t.Context(), tenancytest.Actor, "acme", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if _, err := s.ResumeApp(t.Context(), tenancytest.Actor, "acme", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		err, _ := outcome(tenancy.Suspended)
		tenancytest.WantErr(t, err, tenancy.ErrSuspended)
		if err, reported := outcome(tenancy.Active); !reported || err != nil {
			t.Errorf("reported the resume %v, acquired: %v", reported, err)
		}
		if err := s.DeleteApp(t.Context(), tenancytest.Actor, "acme"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		if err, reported := outcome(tenancy.Deleting); !reported || err == nil {
			t.Errorf("reported the deletion %v, acquired: %v", reported, err)
		}
	})
}

// TestRolesReachTheRecord changes an app's roles: later callers of Acquire get them, without a new build.
func TestRolesReachTheRecord(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		here, elsewhere := tenancytest.NewService(t, d), tenancytest.NewService(t, d) // without signals between them
		for _, s := range []*tenancy.Service{here, elsewhere} {
			s.DefaultApp.Set("Default", []byte("agents: {}"))
		}
		acme := tenancytest.CreateApp(t, here, tenancy.Draft{Name: "acme"})
		b := &runtimeBuilder{}
		l := newTestCache(t, here, b, runtimecache.Options{})
		roles := func(id db.ID) int {
			_, app, release := acquireRuntime(t, l, id)
			defer release()
			return len(app.Roles)
		}
		for id, name := range map[db.ID]string{acme.ID: "acme", tenancy.DefaultID: tenancy.DefaultName} {
			if n := roles(id); n != 0 {
				t.Fatalf("%s begins with %d roles", name, n)
			}
			if _, err := here.Roles.Add(t.Context(), tenancytest.Actor, name, tenancy.Role{Name: "one"}); err != nil {
				t.Fatal(err)
			}
			if n := roles(id); n != 1 {
				t.Errorf("%s has %d roles right after the change, want 1", name, n)
			}
			if err := elsewhere.Roles.Delete(t.Context(), tenancytest.Actor, name, "one"); err != nil {
				t.Fatal(err)
			}
			for began := time.Now(); roles(id) != 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(began) > 20*time.Second {
					t.Fatalf("%s still has a role that another process has taken away", name)
				}
			}
		}
		if n := b.countBuilt(); n != 2 {
			t.Errorf("%d builds, want 2: one of each app", n)
		}
	})
}
