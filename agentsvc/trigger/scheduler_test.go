package trigger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/trigger"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// claimTTL is longer than any test takes. Tests that need the end of a claim set it in the database.
const claimTTL = time.Minute

// fixture is several schedulers on one database, with what they have started.
type fixture struct {
	*testing.T
	d *db.DB

	mu         sync.Mutex
	schedules  map[db.ID]trigger.AppSchedules
	started    []string // app, agent and time of each start
	nextError  error    // the error of the next start
	block      chan struct{}
	hangingApp db.ID         // all starts of this app hang
	unbuilt    db.ID         // the configuration of this app cannot be built
	checked    []db.ID       // the apps whose builds were checked
	hourly     *trigger.Cron // at the beginning of the test it is halfway between two of its ticks, so that none becomes due during the test
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	minute := time.Now().UTC().Add(30 * time.Minute).Minute()
	return &fixture{T: t, d: d, schedules: map[db.ID]trigger.AppSchedules{}, hourly: mustParseCron(t, fmt.Sprint(minute, " * * * *"), "UTC")}
}

// lastTick returns the last tick of the hourly schedule.
func (f *fixture) lastTick() time.Time { return f.hourly.Next(time.Now()).Add(-time.Hour) }

// startScheduler starts a scheduler of the fixture, which ends with the test or when stop is called.
func (f *fixture) startScheduler(defaultApp bool) (stop func()) {
	f.Helper()
	c := trigger.NewScheduler(f.d, trigger.SchedulerOptions{
		LoadConfigured: func(_ context.Context, app db.ID) (trigger.AppSchedules, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			p, ok := f.schedules[app]
			if !ok || app == tenancy.DefaultID && !defaultApp {
				return p, agentsvc.CodeNotFound
			}
			return p, nil
		},
		CheckBuild: func(_ context.Context, app db.ID, _ int64) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.checked = append(f.checked, app)
			if app == f.unbuilt {
				return errors.New("no sandbox")
			}
			return nil
		},
		StartTick: func(ctx context.Context, k trigger.Tick) (agentsvc.TaskID, error) {
			f.mu.Lock()
			block, fail := f.block, f.nextError
			f.nextError = nil
			if block == nil && k.Tenant != f.hangingApp {
				f.started = append(f.started, fmt.Sprint(k.Tenant, " ", k.Agent, " ", k.At.UTC().Format("15:04")))
			}
			f.mu.Unlock()
			if block != nil || k.Tenant == f.hangingApp {
				<-ctx.Done()
				return "", ctx.Err()
			}
			if fail != nil {
				return "", fail
			}
			return "t1", nil
		},
		Log: slog.New(slog.DiscardHandler), TickInterval: 10 * time.Millisecond, SyncInterval: 20 * time.Millisecond, ClaimTTL: claimTTL,
	})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-over
	})
	f.Cleanup(stop)
	return stop
}

// setSchedules sets the schedules of an app.
func (f *fixture) setSchedules(app db.ID, generation int64, crons map[string]*trigger.Cron) {
	f.mu.Lock()
	f.schedules[app] = trigger.AppSchedules{Generation: generation, Crons: crons}
	f.mu.Unlock()
	f.bumpGeneration(app, generation)
}

// bumpGeneration sets an app's generation in the database.
func (f *fixture) bumpGeneration(app db.ID, generation int64) {
	if app != tenancy.DefaultID {
		f.execSQL(`INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, data_key, master_key, grants, plan, labels, created_at, updated_at)
			VALUES ($1, $1, '', 'active', 1, 1, $2, $3, '', '[]', '', '{}', 0, 0) ON CONFLICT (tenant) DO UPDATE SET generation = excluded.generation`,
			string(app), generation, []byte{})
	}
}

func (f *fixture) execSQL(sql string, args ...any) {
	f.Helper()
	var b db.Batch
	b.Exec(nil, sql, args...)
	if err := f.d.Platform().Do(f.Context(), &b); err != nil {
		f.Fatal(err)
	}
}

// makeOverdue makes an app's schedules due since n hours before the last tick.
func (f *fixture) makeOverdue(app db.ID, n int) {
	f.Helper()
	since := f.lastTick().Add(-time.Duration(n) * time.Hour)
	f.execSQL(`UPDATE schedule SET next_at = CAST($2 AS BIGINT), held_until = 0 WHERE tenant = $1`, string(app), since.UnixMicro())
}

// expireClaims ends all claims on ticks.
func (f *fixture) expireClaims() {
	f.Helper()
	f.execSQL(`UPDATE schedule SET held_until = held_until - CAST($1 AS BIGINT) WHERE held_until > 0`, claimTTL.Microseconds())
}

func (f *fixture) loadSchedules(app db.ID) map[string]trigger.ScheduleStatus {
	f.Helper()
	rows, err := trigger.LoadStatus(f.Context(), f.d, app)
	if err != nil {
		f.Fatal(err)
	}
	return rows
}

// requireStarts checks the stored starts of an agent, the newest first.
func (f *fixture) requireStarts(app db.ID, agent string, want ...trigger.Start) {
	f.Helper()
	got, err := trigger.ListStarts(f.Context(), f.d, app, agent)
	if d := diff.Diff(want, got, cmpopts.IgnoreFields(trigger.Start{}, "At")); err != nil || d != "" {
		f.Errorf("the starts of %s: (%v)\n%s", agent, err, d)
	}
}

// waitUntil waits for an effect of the schedulers.
func (f *fixture) waitUntil(what string, holds func() bool) {
	f.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			f.Fatal("never: " + what)
		}
	}
}

func (f *fixture) startedTicks() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.started)
}

// TestScheduler checks that three schedulers start a missed schedule once, for the last of its missed ticks.
func TestScheduler(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		w.setSchedules(tenancy.DefaultID, 1, map[string]*trigger.Cron{"own": w.hourly})
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly, "b": w.hourly})
		for i := range 3 {
			w.startScheduler(i != 1)
		}
		w.waitUntil("the schedules are known", func() bool { return len(w.loadSchedules("acme")) == 2 && len(w.loadSchedules(tenancy.DefaultID)) == 1 })
		if next := w.loadSchedules("acme")["a"].Next; !next.Equal(w.lastTick().Add(time.Hour)) {
			t.Errorf("the first tick is at %v", next)
		}
		w.makeOverdue("acme", 50)
		w.makeOverdue(tenancy.DefaultID, 1)
		w.waitUntil("the ticks are settled", func() bool {
			rows, defaultApp := w.loadSchedules("acme"), w.loadSchedules(tenancy.DefaultID)
			return rows["a"].Last.Task != "" && rows["b"].Last.Task != "" && defaultApp["own"].Last.Task != ""
		})
		time.Sleep(100 * time.Millisecond) // a second start would come now
		got := w.startedTicks()
		slices.Sort(got)
		last := w.lastTick().Format("15:04")
		if d := diff.Diff([]string{"acme a " + last, "acme b " + last, "default own " + last}, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if row := w.loadSchedules("acme")["a"]; !row.Last.At.Equal(w.lastTick()) || !row.Next.Equal(w.lastTick().Add(time.Hour)) || row.Last.Error != "" {
			t.Errorf("what is noted of it is %+v", row)
		}
		w.requireStarts("acme", "a", trigger.Start{Kind: trigger.TickStart, Outcome: "started", Task: "t1"})
	})
}

// TestSchedulerFailures checks a start that fails, one that is refused, and one that is interrupted.
func TestSchedulerFailures(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly})
		stop := w.startScheduler(false)
		w.waitUntil("the schedule is known", func() bool { return len(w.loadSchedules("acme")) == 1 })

		w.mu.Lock()
		w.nextError = errors.New("the database is down")
		w.mu.Unlock()
		w.makeOverdue("acme", 1)
		w.waitUntil("it fails", func() bool { return len(w.startedTicks()) == 1 })
		w.expireClaims()
		w.waitUntil("it is tried again", func() bool { return w.loadSchedules("acme")["a"].Last.Task == "t1" })
		if n := len(w.startedTicks()); n != 2 {
			t.Errorf("it was tried %d times, want 2", n)
		}

		w.mu.Lock()
		w.nextError = fmt.Errorf("%w: no more calls this hour", trigger.ErrTickRefused)
		w.mu.Unlock()
		w.makeOverdue("acme", 1)
		w.waitUntil("the refusal is noted", func() bool { return w.loadSchedules("acme")["a"].Last.Error != "" })
		if row := w.loadSchedules("acme")["a"]; row.Last.Task != "" || row.Last.Error != "the tick is refused: no more calls this hour" || row.Next.Before(time.Now()) {
			t.Errorf("what is noted of a refusal is %+v", row)
		}

		w.mu.Lock()
		w.block = make(chan struct{})
		w.mu.Unlock()
		w.makeOverdue("acme", 1)
		w.waitUntil("the tick is taken", w.hasClaimedTick)
		stop()
		w.mu.Lock()
		w.block = nil
		w.mu.Unlock()
		w.expireClaims()
		w.startScheduler(false)
		w.waitUntil("another starts what the dead one has taken", func() bool { return w.loadSchedules("acme")["a"].Last.Task == "t1" })
		if n := len(w.startedTicks()); n != 4 {
			t.Errorf("it was started %d times in all, want 4", n)
		}
		started := trigger.Start{Kind: trigger.TickStart, Outcome: "started", Task: "t1"}
		w.requireStarts("acme", "a", started, trigger.Start{Kind: trigger.TickStart, Outcome: "refused", Error: "the tick is refused: no more calls this hour"}, started)
	})
}

// hasClaimedTick reports whether any tick is claimed.
func (f *fixture) hasClaimedTick() bool {
	return f.countRows(`SELECT COUNT(*) FROM schedule WHERE held_until > stoa_now()`) > 0
}

// countRows returns the number that a query selects.
func (f *fixture) countRows(sql string) (n int) {
	f.Helper()
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, sql)
	if err := f.d.Platform().Do(f.Context(), &b); err != nil {
		f.Fatal(err)
	}
	return n
}

// TestSchedulerSlowApp checks that an app whose starts all hang does not delay the ticks of others.
func TestSchedulerSlowApp(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		many := map[string]*trigger.Cron{}
		for i := range 40 {
			many[fmt.Sprint("a", i)] = w.hourly
		}
		w.setSchedules("slow", 1, many)
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly})
		w.hangingApp = "slow"
		w.startScheduler(false)
		w.waitUntil("the schedules are known", func() bool { return len(w.loadSchedules("slow")) == 40 && len(w.loadSchedules("acme")) == 1 })
		w.makeOverdue("slow", 2)
		w.waitUntil("the slow one hangs", w.hasClaimedTick)
		w.makeOverdue("acme", 1)
		w.waitUntil("the other's tick is settled", func() bool { return w.loadSchedules("acme")["a"].Last.Task != "" })
	})
}

// TestSchedulersStartTogether checks that a process that stores the default app's schedules just after another one did
// leaves the tick that is due meanwhile alone. On SQLite one write follows the other, so there is nothing to check.
func TestSchedulersStartTogether(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	w := newFixture(t, d)
	w.setSchedules(tenancy.DefaultID, 1, map[string]*trigger.Cron{"own": w.hourly})
	err := d.Tenant(tenancy.DefaultID).RunTx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO schedule (tenant, agent, spec, next_at) VALUES ($1, 'own', $2, $3)`,
			string(tenancy.DefaultID), w.hourly.String(), w.lastTick().UnixMicro())
		w.startScheduler(true)
		w.waitUntil("the second one waits for the first one's row", func() bool { return dbtest.CountLockWaiters(t, d) > 0 })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	w.waitUntil("the tick is started", func() bool { return w.loadSchedules(tenancy.DefaultID)["own"].Last.Task == "t1" })
}

// TestSchedulerChanges changes an app's schedules and its status, and stores the schedules of an old generation late.
func TestSchedulerChanges(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		daily := mustParseCron(t, fmt.Sprint("0 ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *"), "Europe/Berlin") // 12 hours from now
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly, "b": w.hourly})
		w.startScheduler(false)
		w.waitUntil("the schedules are known", func() bool { return len(w.loadSchedules("acme")) == 2 })
		w.setSchedules("acme", 2, map[string]*trigger.Cron{"a": daily, "c": w.hourly})
		w.waitUntil("the new schedules are known", func() bool {
			rows := w.loadSchedules("acme")
			_, b := rows["b"]
			_, c := rows["c"]
			return rows["a"].Spec == daily.String() && !b && c
		})
		if next := w.loadSchedules("acme")["a"].Next; !next.Equal(daily.Next(time.Now())) {
			t.Errorf("the changed schedule begins at %v", next)
		}
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"old": w.hourly})
		w.bumpGeneration("acme", 3) // so that the schedulers read the schedules of another generation
		time.Sleep(60 * time.Millisecond)
		if _, old := w.loadSchedules("acme")["old"]; old {
			t.Error("a plan of an older generation has replaced a newer one")
		}
		w.execSQL(`UPDATE app SET status = 'suspended' WHERE tenant = 'acme'`)
		w.makeOverdue("acme", 1)
		time.Sleep(60 * time.Millisecond)
		if got := w.startedTicks(); len(got) > 0 {
			t.Errorf("a suspended app's schedules have started %v", got)
		}
	})
}

// TestDueTickSurvivesChange checks that a tick that was due when the schedule changed is started, once, and that the
// changed schedule then begins.
func TestDueTickSurvivesChange(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		daily := mustParseCron(t, fmt.Sprint("0 ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *"), "UTC")
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly})
		stop := w.startScheduler(false)
		w.waitUntil("the schedule is known", func() bool { return len(w.loadSchedules("acme")) == 1 })
		stop()
		w.makeOverdue("acme", 3)
		w.setSchedules("acme", 2, map[string]*trigger.Cron{"a": daily})
		w.startScheduler(false)
		w.waitUntil("the tick is settled", func() bool { return w.loadSchedules("acme")["a"].Last.Task != "" })
		row := w.loadSchedules("acme")["a"]
		if row.Spec != daily.String() || !row.Last.At.Equal(w.lastTick()) || !row.Next.Equal(daily.Next(time.Now())) {
			t.Errorf("the changed schedule is %+v, want the last tick at %v", row, w.lastTick())
		}
		if d := diff.Diff([]string{"acme a " + w.lastTick().Format("15:04")}, w.startedTicks()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// setUnbuilt sets the app whose configuration cannot be built; "" = none.
func (f *fixture) setUnbuilt(app db.ID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unbuilt = app
}

// TestUnbuiltSchedules checks that a revision that is read but cannot be built leaves the schedules, their history
// and a due tick alone, and that its schedules act once it can be built. Apps without schedules are not built for
// them.
func TestUnbuiltSchedules(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly, "b": w.hourly})
		w.startScheduler(false)
		w.waitUntil("the schedules are known", func() bool { return len(w.loadSchedules("acme")) == 2 })
		w.makeOverdue("acme", 1)
		w.waitUntil("the ticks are settled", func() bool {
			rows := w.loadSchedules("acme")
			return rows["a"].Last.Task != "" && rows["b"].Last.Task != ""
		})
		before := w.loadSchedules("acme")
		daily := mustParseCron(t, fmt.Sprint("0 ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *"), "UTC")
		for i, next := range []map[string]*trigger.Cron{{"a": daily}, {}} {
			w.setUnbuilt("acme")
			w.setSchedules("acme", int64(i+2), next)
			other := db.ID(fmt.Sprint("other", i))
			w.setSchedules(other, 1, map[string]*trigger.Cron{"a": w.hourly})
			w.waitUntil("both changes are read", func() bool { return len(w.loadSchedules(other)) == 1 })
			if d := diff.Diff(before, w.loadSchedules("acme")); d != "" {
				t.Errorf("revision %d (-before +after):\n%s", i+2, d)
			}
		}
		started := len(w.startedTicks())
		w.makeOverdue("acme", 1)
		w.waitUntil("the due ticks are started", func() bool { return len(w.startedTicks()) == started+2 })
		w.setUnbuilt("")
		w.waitUntil("the revision acts", func() bool { return len(w.loadSchedules("acme")) == 0 })

		w.setSchedules("plain", 1, map[string]*trigger.Cron{})
		w.waitUntil("the app without schedules is read", func() bool { return w.countRows(`SELECT COUNT(*) FROM schedule_app WHERE tenant = 'plain'`) == 1 })
		w.mu.Lock()
		defer w.mu.Unlock()
		if slices.Contains(w.checked, "plain") {
			t.Error("an app without schedules was built")
		}
	})
}

// TestUnknownSchedules checks that a configuration that does not load leaves the schedules and their history alone.
func TestUnknownSchedules(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		w.setSchedules("acme", 1, map[string]*trigger.Cron{"a": w.hourly})
		w.startScheduler(false)
		w.waitUntil("the schedule is known", func() bool { return len(w.loadSchedules("acme")) == 1 })
		w.makeOverdue("acme", 1)
		w.waitUntil("the tick is settled", func() bool { return w.loadSchedules("acme")["a"].Last.Task != "" })
		before := w.loadSchedules("acme")
		w.setSchedules("acme", 2, nil)
		w.setSchedules("other", 1, map[string]*trigger.Cron{"a": w.hourly})
		w.waitUntil("both changes are read", func() bool { return len(w.loadSchedules("other")) == 1 })
		if d := diff.Diff(before, w.loadSchedules("acme")); d != "" {
			t.Errorf("(-before +after):\n%s", d)
		}
		// A process that can load it stores it.
		w.mu.Lock()
		w.schedules["acme"] = trigger.AppSchedules{Generation: 2, Crons: map[string]*trigger.Cron{}}
		w.mu.Unlock()
		w.startScheduler(false)
		w.waitUntil("the schedule is deleted", func() bool { return len(w.loadSchedules("acme")) == 0 })
	})
}
