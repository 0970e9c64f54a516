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
	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/trigger"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold is how long a tick is its taker's: longer than any test takes. Those that wait for its end have it lapse.
const hold = time.Minute

// tower is some clocks on one database, and what they have started.
type tower struct {
	*testing.T
	d *db.DB

	mu      sync.Mutex
	plans   map[db.ID]trigger.Plan
	started []string // app, agent and time, as often as it was
	fail    error    // of the next start
	held    chan struct{}
	hangs   db.ID         // the app whose starts all hang
	hourly  *trigger.Cron // halfway between two of its ticks when the test begins, so that none comes by itself
}

func newTower(t *testing.T, d *db.DB) *tower {
	minute := time.Now().UTC().Add(30 * time.Minute).Minute()
	return &tower{T: t, d: d, plans: map[db.ID]trigger.Plan{}, hourly: cron(t, fmt.Sprint(minute, " * * * *"), "UTC")}
}

// last returns the last of the hourly ticks.
func (w *tower) last() time.Time { return w.hourly.Next(time.Now()).Add(-time.Hour) }

// clock starts a clock of the tower, which ends with the test or when it is told to.
func (w *tower) clock(own bool) (stop func()) {
	w.Helper()
	c := trigger.NewClock(w.d, trigger.ClockOptions{
		Plan: func(_ context.Context, app db.ID) (trigger.Plan, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			p, ok := w.plans[app]
			if !ok || app == tenancy.DefaultID && !own {
				return p, tenancy.ErrNotFound
			}
			return p, nil
		},
		Start: func(ctx context.Context, k trigger.Tick) (agentsvc.TaskID, error) {
			w.mu.Lock()
			held, fail := w.held, w.fail
			w.fail = nil
			if held == nil && k.Tenant != w.hangs {
				w.started = append(w.started, fmt.Sprint(k.Tenant, " ", k.Agent, " ", k.At.UTC().Format("15:04")))
			}
			w.mu.Unlock()
			if held != nil || k.Tenant == w.hangs {
				<-ctx.Done()
				return "", ctx.Err()
			}
			if fail != nil {
				return "", fail
			}
			return "t1", nil
		},
		Log: slog.New(slog.DiscardHandler), Look: 10 * time.Millisecond, Read: 20 * time.Millisecond, Hold: hold,
	})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		<-over
	})
	w.Cleanup(stop)
	return stop
}

// plan gives an app schedules.
func (w *tower) plan(app db.ID, generation int64, crons map[string]*trigger.Cron) {
	w.mu.Lock()
	w.plans[app] = trigger.Plan{Generation: generation, Crons: crons}
	w.mu.Unlock()
	w.change(app, generation)
}

// change has the database say that an app has changed.
func (w *tower) change(app db.ID, generation int64) {
	if app != tenancy.DefaultID {
		w.exec(`INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, data_key, master_key, grants, plan, labels, created_at, updated_at)
			VALUES ($1, $1, '', 'active', 1, 1, $2, $3, '', '[]', '', '{}', 0, 0) ON CONFLICT (tenant) DO UPDATE SET generation = excluded.generation`,
			string(app), generation, []byte{})
	}
}

func (w *tower) exec(sql string, args ...any) {
	w.Helper()
	var b db.Batch
	b.Exec(nil, sql, args...)
	if err := w.d.Platform().Do(w.Context(), &b); err != nil {
		w.Fatal(err)
	}
}

// miss makes an app's schedules due since n hours before the last tick.
func (w *tower) miss(app db.ID, n int) {
	w.Helper()
	since := w.last().Add(-time.Duration(n) * time.Hour)
	w.exec(`UPDATE schedule SET next_at = CAST($2 AS BIGINT), held_until = 0 WHERE tenant = $1`, string(app), since.UnixMicro())
}

// lapse lets the time pass for which ticks are held.
func (w *tower) lapse() {
	w.Helper()
	w.exec(`UPDATE schedule SET held_until = held_until - CAST($1 AS BIGINT) WHERE held_until > 0`, hold.Microseconds())
}

func (w *tower) rows(app db.ID) map[string]trigger.Row {
	w.Helper()
	rows, err := trigger.Rows(w.Context(), w.d, app)
	if err != nil {
		w.Fatal(err)
	}
	return rows
}

// until waits for what the clocks do.
func (w *tower) until(what string, holds func() bool) {
	w.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			w.Fatal("never: " + what)
		}
	}
}

func (w *tower) starts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.started)
}

// TestClock has three clocks start what was missed, once, for the last of the missed times.
func TestClock(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newTower(t, d)
		w.plan(tenancy.DefaultID, 1, map[string]*trigger.Cron{"own": w.hourly})
		w.plan("acme", 1, map[string]*trigger.Cron{"a": w.hourly, "b": w.hourly})
		for i := range 3 {
			w.clock(i != 1)
		}
		w.until("the schedules are known", func() bool { return len(w.rows("acme")) == 2 && len(w.rows(tenancy.DefaultID)) == 1 })
		if next := w.rows("acme")["a"].Next; !next.Equal(w.last().Add(time.Hour)) {
			t.Errorf("the first tick is at %v", next)
		}
		w.miss("acme", 50)
		w.miss(tenancy.DefaultID, 1)
		w.until("the ticks are settled", func() bool {
			rows, own := w.rows("acme"), w.rows(tenancy.DefaultID)
			return rows["a"].Last.Task != "" && rows["b"].Last.Task != "" && own["own"].Last.Task != ""
		})
		time.Sleep(100 * time.Millisecond) // another would come now
		got := w.starts()
		slices.Sort(got)
		last := w.last().Format("15:04")
		if d := diff.Diff([]string{"acme a " + last, "acme b " + last, "default own " + last}, got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if row := w.rows("acme")["a"]; !row.Last.At.Equal(w.last()) || !row.Next.Equal(w.last().Add(time.Hour)) || row.Last.Error != "" {
			t.Errorf("what is noted of it is %+v", row)
		}
	})
}

// TestClockFails has the start fail, be refused, and die in the middle.
func TestClockFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newTower(t, d)
		w.plan("acme", 1, map[string]*trigger.Cron{"a": w.hourly})
		stop := w.clock(false)
		w.until("the schedule is known", func() bool { return len(w.rows("acme")) == 1 })

		w.mu.Lock()
		w.fail = errors.New("the database is down")
		w.mu.Unlock()
		w.miss("acme", 1)
		w.until("it fails", func() bool { return len(w.starts()) == 1 })
		w.lapse()
		w.until("it is tried again", func() bool { return w.rows("acme")["a"].Last.Task == "t1" })
		if n := len(w.starts()); n != 2 {
			t.Errorf("it was tried %d times, want 2", n)
		}

		w.mu.Lock()
		w.fail = fmt.Errorf("%w: no more calls this hour", trigger.ErrRefused)
		w.mu.Unlock()
		w.miss("acme", 1)
		w.until("the refusal is noted", func() bool { return w.rows("acme")["a"].Last.Error != "" })
		if row := w.rows("acme")["a"]; row.Last.Task != "" || row.Last.Error != "the tick is refused: no more calls this hour" || row.Next.Before(time.Now()) {
			t.Errorf("what is noted of a refusal is %+v", row)
		}

		w.mu.Lock()
		w.held = make(chan struct{})
		w.mu.Unlock()
		w.miss("acme", 1)
		w.until("the tick is taken", w.taken)
		stop()
		w.mu.Lock()
		w.held = nil
		w.mu.Unlock()
		w.lapse()
		w.clock(false)
		w.until("another starts what the dead one has taken", func() bool { return w.rows("acme")["a"].Last.Task == "t1" })
		if n := len(w.starts()); n != 4 {
			t.Errorf("it was started %d times in all, want 4", n)
		}
	})
}

// taken reports whether somebody has taken a tick.
func (w *tower) taken() bool {
	n := 0
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&n) }, `SELECT COUNT(*) FROM schedule WHERE held_until > stoa_now()`)
	if err := w.d.Platform().Do(w.Context(), &b); err != nil {
		w.Fatal(err)
	}
	return n > 0
}

// TestClockSlow: an app of which every start hangs delays nobody else's ticks.
func TestClockSlow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newTower(t, d)
		many := map[string]*trigger.Cron{}
		for i := range 40 {
			many[fmt.Sprint("a", i)] = w.hourly
		}
		w.plan("slow", 1, many)
		w.plan("acme", 1, map[string]*trigger.Cron{"a": w.hourly})
		w.hangs = "slow"
		w.clock(false)
		w.until("the schedules are known", func() bool { return len(w.rows("slow")) == 40 && len(w.rows("acme")) == 1 })
		w.miss("slow", 2)
		w.until("the slow one hangs", w.taken)
		w.miss("acme", 1)
		w.until("the other's tick is settled", func() bool { return w.rows("acme")["a"].Last.Task != "" })
	})
}

// TestClockChanges changes an app's schedules, its state, and has an old plan come late.
func TestClockChanges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newTower(t, d)
		daily := cron(t, fmt.Sprint("0 ", time.Now().UTC().Add(12*time.Hour).Hour(), " * * *"), "Europe/Berlin") // hours away
		w.plan("acme", 1, map[string]*trigger.Cron{"a": w.hourly, "b": w.hourly})
		w.clock(false)
		w.until("the schedules are known", func() bool { return len(w.rows("acme")) == 2 })
		w.plan("acme", 2, map[string]*trigger.Cron{"a": daily, "c": w.hourly})
		w.until("the new schedules are known", func() bool {
			rows := w.rows("acme")
			_, b := rows["b"]
			_, c := rows["c"]
			return rows["a"].Spec == daily.String() && !b && c
		})
		if next := w.rows("acme")["a"].Next; !next.Equal(daily.Next(time.Now())) {
			t.Errorf("the changed schedule begins at %v", next)
		}
		w.plan("acme", 1, map[string]*trigger.Cron{"old": w.hourly})
		w.change("acme", 3) // so that somebody reads what was the plan of another generation
		time.Sleep(60 * time.Millisecond)
		if _, old := w.rows("acme")["old"]; old {
			t.Error("a plan of an older generation has replaced a newer one")
		}
		w.exec(`UPDATE app SET status = 'suspended' WHERE tenant = 'acme'`)
		w.miss("acme", 1)
		time.Sleep(60 * time.Millisecond)
		if got := w.starts(); len(got) > 0 {
			t.Errorf("a suspended app's schedules have started %v", got)
		}
	})
}
