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

// DueTick is a schedule whose next tick is due.
type DueTick struct {
	Tenant db.ID
	Agent  string
	// Spec is [Cron.String] of the schedule.
	Spec string
	// At is the time of the tick that is due.
	At time.Time
	// Now is the database's time of the query.
	Now time.Time
}

// latest returns the last of the missed ticks of d's schedule, the only one that is started.
func (d DueTick) latest() time.Time {
	if c, err := ParseCronSpec(d.Spec); err == nil && !d.At.After(d.Now) {
		return c.LatestTick(d.At, d.Now)
	}
	return d.At
}

// Outcome is the result of a tick.
type Outcome struct {
	// At is the scheduled time.
	At   time.Time
	Task agentsvc.TaskID
	// Error is why there is no task, "" if there is one.
	Error string
}

// ScheduleStatus is the state of a schedule.
type ScheduleStatus struct {
	Spec string
	Next time.Time
	// Last is the outcome of the last tick, zero if there was none.
	Last Outcome
}

// scheduleTable has the statements on the tables schedule and schedule_app. A row of schedule is one agent's schedule;
// its column held_until is the end of the claim on its next tick.
type scheduleTable struct{ db *db.DB }

// maxAppsPerQuery bounds the rows of one query.
const maxAppsPerQuery = 100

// changedApp is an app whose generation is newer than the one at which its schedules were stored.
type changedApp struct {
	id         db.ID
	generation int64
	// scheduled means that schedules of the app are stored.
	scheduled bool
}

// findChangedApps returns changed apps in the order of their ids after one, at most maxAppsPerQuery.
func (t scheduleTable) findChangedApps(ctx context.Context, after db.ID) (changed []changedApp, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error {
		var app changedApp
		var schedules int64
		err := r.Scan((*string)(&app.id), &app.generation, &schedules)
		app.scheduled = schedules > 0
		changed = append(changed, app)
		return err
	}, `SELECT a.tenant, a.generation, (SELECT COUNT(*) FROM schedule t WHERE t.tenant = a.tenant) FROM app a LEFT JOIN schedule_app s ON s.tenant = a.tenant
		WHERE a.tenant > $1 AND a.status <> 'deleting' AND (s.generation IS NULL OR s.generation < a.generation) ORDER BY a.tenant LIMIT $2`, string(after), maxAppsPerQuery)
	if err := t.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("look for apps whose schedules may have changed: %w", err)
	}
	return changed, nil
}

// saveSchedules replaces the stored schedules of an app by those of a generation. A schedule keeps its last outcome, and
// an unchanged one its next tick. A new one gets the first tick from now on. A changed one does as well, unless a tick is
// due: that stays due, with its claim. A removed one is deleted. An older generation than the stored one changes nothing, so processes
// that are behind cannot undo a change.
func (t scheduleTable) saveSchedules(ctx context.Context, app db.ID, generation int64, want map[string]*Cron) error {
	err := t.db.Tenant(app).RunTx(ctx, func(tx *db.Tx) error {
		// Generations of the default app are each process's own and cannot be compared.
		if app != tenancy.DefaultID {
			n, err := tx.Exec(ctx, `INSERT INTO schedule_app (tenant, generation) VALUES ($1, $2)
				ON CONFLICT (tenant) DO UPDATE SET generation = excluded.generation WHERE schedule_app.generation < excluded.generation`, string(app), generation)
			if err != nil || n == 0 {
				return err
			}
		}
		var now int64
		there := map[string]DueTick{}
		err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&now) }, `SELECT stoa_now()`)
		if err == nil {
			err = tx.Query(ctx, func(r db.Row) error {
				var d DueTick
				var next int64
				err := r.Scan(&d.Agent, &d.Spec, &next)
				d.At, d.Now = time.UnixMicro(next), time.UnixMicro(now)
				there[d.Agent] = d
				return err
			}, `SELECT agent, spec, next_at FROM schedule WHERE tenant = $1`, string(app))
		}
		if err != nil {
			return err
		}
		// Sorted, so that concurrent transactions lock the rows in one order.
		for _, agent := range slices.Sorted(maps.Keys(want)) {
			c := want[agent]
			if there[agent].Spec == c.String() {
				continue
			}
			if _, err := tx.Exec(ctx, `INSERT INTO schedule (tenant, agent, spec, next_at) VALUES ($1, $2, $3, $4)
				ON CONFLICT (tenant, agent) DO UPDATE SET spec = excluded.spec,
					next_at = CASE WHEN schedule.next_at <= $5 THEN $6 ELSE excluded.next_at END,
					held_until = CASE WHEN schedule.next_at <= $5 THEN schedule.held_until ELSE 0 END
					WHERE schedule.spec <> excluded.spec`, // another process may have stored it since the query above
				string(app), agent, c.String(), c.Next(time.UnixMicro(now)).UnixMicro(), now, there[agent].latest().UnixMicro()); err != nil {
				return err
			}
		}
		for _, agent := range slices.Sorted(maps.Keys(there)) {
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

// findDueTicks returns schedules whose tick is due and not claimed, at most maxTicksPerApp of each app, the longest due
// first.
func (t scheduleTable) findDueTicks(ctx context.Context) (due []DueTick, err error) {
	var b db.Batch
	// Apps that are suspended or being deleted are excluded. The default app has no row in table app and is not.
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

// claimTick claims a tick for a time, and reports whether it succeeded. The conditions on spec and next_at make the
// claim fail if the schedule was changed, or the tick completed, since it was read.
func (t scheduleTable) claimTick(ctx context.Context, d DueTick, lasting time.Duration) (mine bool, err error) {
	var n int64
	var b db.Batch
	b.Exec(&n, `UPDATE schedule SET held_until = stoa_now() + CAST($5 AS BIGINT)
		WHERE tenant = $1 AND agent = $2 AND spec = $3 AND next_at = $4 AND held_until <= stoa_now()`,
		string(d.Tenant), d.Agent, d.Spec, d.At.UnixMicro(), lasting.Microseconds())
	if err := t.db.Tenant(d.Tenant).Do(ctx, &b); err != nil {
		return false, fmt.Errorf("claim a tick: %w", err)
	}
	return n > 0, nil
}

// finishTick stores the outcome of a tick and the time of the next one, and ends the claim. If the schedule was changed
// meanwhile it stores the start alone, for [ListStarts].
func (t scheduleTable) finishTick(ctx context.Context, d DueTick, o Outcome, next time.Time) error {
	var b db.Batch
	b.Exec(nil, `UPDATE schedule SET next_at = $5, held_until = 0, last_at = $6, last_task = $7, last_error = $8
		WHERE tenant = $1 AND agent = $2 AND spec = $3 AND next_at = $4`,
		string(d.Tenant), d.Agent, d.Spec, d.At.UnixMicro(), next.UnixMicro(), o.At.UnixMicro(), string(o.Task), o.Error)
	start := Start{Kind: TickStart, Outcome: "started", Task: o.Task, Error: o.Error}
	if o.Error != "" {
		start.Outcome = "refused"
	}
	queueStart(&b, d.Tenant, d.Agent, start)
	if err := t.db.Tenant(d.Tenant).Do(ctx, &b); err != nil {
		return fmt.Errorf("complete a tick: %w", err)
	}
	return nil
}

// LoadStatus returns the state of the schedules of an app, by agent.
func LoadStatus(ctx context.Context, d *db.DB, app db.ID) (map[string]ScheduleStatus, error) {
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
