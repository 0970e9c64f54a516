package trigger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// DueTick is a schedule whose time has come.
type DueTick struct {
	Tenant db.ID
	Agent  string
	Spec   string    // as [Cron.String] writes it
	At     time.Time // the tick that is due
	Now    time.Time // by the database
}

// Outcome is what came of a tick.
type Outcome struct {
	At    time.Time // the scheduled time
	Task  agentsvc.TaskID
	Error string // why there is no task
}

// ScheduleStatus is a schedule as it stands.
type ScheduleStatus struct {
	Spec string
	Next time.Time
	Last Outcome // zero = it had no tick yet
}

// scheduleTable holds the schedules of all apps.
type scheduleTable struct{ db *db.DB }

// maxAppsPerQuery is how many are looked at in one go.
const maxAppsPerQuery = 100

// findChangedApps returns some apps that have changed since their schedules were read.
func (t scheduleTable) findChangedApps(ctx context.Context) (ids []db.ID, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		var id db.ID
		err := r.Scan((*string)(&id))
		ids = append(ids, id)
		return err
	}, `SELECT a.tenant FROM app a LEFT JOIN schedule_app s ON s.tenant = a.tenant
		WHERE a.status <> 'deleting' AND (s.generation IS NULL OR s.generation < a.generation) ORDER BY a.tenant LIMIT $1`, maxAppsPerQuery)
	if err := t.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for apps whose schedules may have changed: %w", err)
	}
	return ids, nil
}

// saveSchedules makes want the schedules of an app, as they are at a generation of it. What is there already keeps its next tick;
// what is new or another one begins with the first tick from now on. Of an app in the database an older generation changes
// nothing.
func (t scheduleTable) saveSchedules(ctx context.Context, app db.ID, generation int64, want map[string]*Cron) error {
	err := t.db.Tenant(app).RunTx(ctx, func(tx *db.Tx) error {
		if app != tenancy.DefaultID { // whose generations are each process's own
			n, err := tx.Exec(ctx, `INSERT INTO schedule_app (tenant, generation) VALUES ($1, $2)
				ON CONFLICT (tenant) DO UPDATE SET generation = excluded.generation WHERE schedule_app.generation < excluded.generation`, string(app), generation)
			if err != nil || n == 0 {
				return err
			}
		}
		var now int64
		there := map[string]string{}
		err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&now) }, `SELECT stoa_now()`)
		if err == nil {
			err = tx.Query(ctx, func(r db.Row) error {
				var agent, spec string
				err := r.Scan(&agent, &spec)
				there[agent] = spec
				return err
			}, `SELECT agent, spec FROM schedule WHERE tenant = $1`, string(app))
		}
		if err != nil {
			return err
		}
		for _, agent := range slices.Sorted(maps.Keys(want)) { // all lock in one order
			c := want[agent]
			if there[agent] == c.String() {
				continue
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schedule (tenant, agent, spec, next_at) VALUES ($1, $2, $3, $4)
				ON CONFLICT (tenant, agent) DO UPDATE SET spec = excluded.spec, next_at = excluded.next_at, held_until = 0`,
				string(app), agent, c.String(), c.Next(time.UnixMicro(now)).UnixMicro()); err != nil {
				return err
			}
		}
		for agent := range there {
			if want[agent] != nil {
				continue
			}
			if _, err := tx.Exec(ctx, `DELETE FROM schedule WHERE tenant = $1 AND agent = $2`, string(app), agent); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the schedules of app %s: %w", app, err)
	}
	return nil
}

// findDueTicks returns some schedules whose time has come and that nobody has taken, a few of each app, the longest due first.
func (t scheduleTable) findDueTicks(ctx context.Context) (due []DueTick, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		var d DueTick
		var at, now int64
		err := r.Scan((*string)(&d.Tenant), &d.Agent, &d.Spec, &at, &now)
		d.At, d.Now = time.UnixMicro(at), time.UnixMicro(now)
		due = append(due, d)
		return err
	}, `SELECT tenant, agent, spec, next_at, stoa_now() FROM (
			SELECT s.*, ROW_NUMBER() OVER (PARTITION BY s.tenant ORDER BY s.next_at, s.agent) AS place FROM schedule s
			WHERE s.next_at <= stoa_now() AND s.held_until <= stoa_now()
				AND NOT EXISTS (SELECT 1 FROM app a WHERE a.tenant = s.tenant AND a.status <> 'active')) d
		WHERE place <= $1 ORDER BY next_at LIMIT $2`, maxTicksPerApp, maxAppsPerQuery)
	if err := t.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for ticks that are due: %w", err)
	}
	return due, nil
}

// claimTick takes a tick for a time, and reports whether nobody else has.
func (t scheduleTable) claimTick(ctx context.Context, d DueTick, lasting time.Duration) (mine bool, err error) {
	var n int64
	var b db.Batch
	b.Exec(&n, `UPDATE schedule SET held_until = stoa_now() + CAST($5 AS BIGINT)
		WHERE tenant = $1 AND agent = $2 AND spec = $3 AND next_at = $4 AND held_until <= stoa_now()`,
		string(d.Tenant), d.Agent, d.Spec, d.At.UnixMicro(), lasting.Microseconds())
	if err := t.db.Tenant(d.Tenant).Do(ctx, &b); err != nil {
		return false, fmt.Errorf("take a tick: %w", err)
	}
	return n > 0, nil
}

// finishTick writes down what came of a tick, and when the next one is due.
func (t scheduleTable) finishTick(ctx context.Context, d DueTick, o Outcome, next time.Time) error {
	var b db.Batch
	b.Exec(nil, `UPDATE schedule SET next_at = $5, held_until = 0, last_at = $6, last_task = $7, last_error = $8
		WHERE tenant = $1 AND agent = $2 AND spec = $3 AND next_at = $4`,
		string(d.Tenant), d.Agent, d.Spec, d.At.UnixMicro(), next.UnixMicro(), o.At.UnixMicro(), string(o.Task), o.Error)
	if err := t.db.Tenant(d.Tenant).Do(ctx, &b); err != nil {
		return fmt.Errorf("settle a tick: %w", err)
	}
	return nil
}

// LoadSchedules returns the schedules of an app by agent.
func LoadSchedules(ctx context.Context, d *db.DB, app db.ID) (map[string]ScheduleStatus, error) {
	rows := map[string]ScheduleStatus{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var agent string
		var row ScheduleStatus
		var next, last int64
		err := r.Scan(&agent, &row.Spec, &next, &last, (*string)(&row.Last.Task), &row.Last.Error)
		row.Next = time.UnixMicro(next)
		if last > 0 {
			row.Last.At = time.UnixMicro(last)
		}
		rows[agent] = row
		return err
	}, `SELECT agent, spec, next_at, last_at, last_task, last_error FROM schedule WHERE tenant = $1`, string(app))
	if err := d.Tenant(app).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the schedules: %w", err)
	}
	return rows, nil
}
