package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/tenancy/db"
)

// Process describes a process of the installation.
type Process struct {
	ID, Host, Version, Commit, Role string
	// Migration is the last that its program knows.
	Migration uint
	// AwaitsRestart are the keys of its configuration file that were changed and act only after a restart.
	AwaitsRestart []string

	// The rest is set by ListProcesses, with the times of the database's clock.

	StartedAt, SeenAt time.Time
	// StoppingAt is when it began to drain, zero if it did not.
	StoppingAt time.Time
	// Silent is how long it has not been seen.
	Silent time.Duration
	// Runs are the runs in the database that it has leases on.
	Runs int64
}

// Status is what a process does.
type Status string

// The states.
const (
	Serving  Status = "serving"
	Stopping Status = "stopping"
	// Lost is a process that was not seen for lostAfter: it was killed, or does not reach the database.
	Lost Status = "lost"
)

// lostAfter is several reports.
const lostAfter = 4 * reportInterval

// Status returns what the process does.
func (p Process) Status() Status {
	switch {
	case p.Silent > lostAfter:
		return Lost
	case !p.StoppingAt.IsZero():
		return Stopping
	}
	return Serving
}

// Lease is work of the whole installation that one process does.
type Lease struct {
	Name, Process string
	ExpiresAt     time.Time
}

// Schema is the state of the database's schema.
type Schema struct {
	// Migration is the last that was started. Dirty means that it was interrupted.
	Migration uint
	Dirty     bool
}

// maxListed bounds the lists of processes and of leases. More processes than this start only where each one is killed soon.
const maxListed = 500

// Fleet is the state of an installation.
type Fleet struct {
	// Processes are those last started first.
	Processes []Process
	// Leases are those that have not expired, by name.
	Leases []Lease
	Schema Schema
}

// Load returns the state of the installation.
func Load(ctx context.Context, d *db.DB) (Fleet, error) {
	var f Fleet
	var b db.Batch
	b.Query(func(r db.Row) error {
		p, err := scanProcess(r)
		f.Processes = append(f.Processes, p)
		return err
	}, `SELECT p.id, p.host, p.version, p.build_commit, p.role, p.migration, p.started_at, p.seen_at, p.stopping_at, p.awaits_restart, stoa_now() - p.seen_at, COALESCE(r.n, 0)
		FROM process p LEFT JOIN (SELECT worker, COUNT(*) AS n FROM run WHERE state = 'running' GROUP BY worker) r ON r.worker = p.id
		ORDER BY p.started_at DESC, p.id LIMIT $1`, maxListed)
	b.Query(func(r db.Row) error {
		var l Lease
		var until int64
		err := r.Scan(&l.Name, &l.Process, &until)
		l.ExpiresAt = time.UnixMicro(until)
		f.Leases = append(f.Leases, l)
		return err
	}, `SELECT name, holder, until FROM duty WHERE until > stoa_now() ORDER BY name LIMIT $1`, maxListed)
	b.Query(func(r db.Row) error { return r.Scan(&f.Schema.Migration, &f.Schema.Dirty) }, `SELECT version, dirty FROM stoa_migrations`)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return Fleet{}, fmt.Errorf("read the processes: %w", err)
	}
	return f, nil
}

// scanProcess reads a row of Load.
func scanProcess(r db.Row) (p Process, err error) {
	var started, seen, stopping, silent int64
	var keys string
	if err = r.Scan(&p.ID, &p.Host, &p.Version, &p.Commit, &p.Role, &p.Migration, &started, &seen, &stopping, &keys, &silent, &p.Runs); err != nil {
		return p, err
	}
	p.StartedAt, p.SeenAt, p.Silent = time.UnixMicro(started), time.UnixMicro(seen), time.Duration(silent)*time.Microsecond
	if stopping > 0 {
		p.StoppingAt = time.UnixMicro(stopping)
	}
	if keys != "" {
		if err = json.Unmarshal([]byte(keys), &p.AwaitsRestart); err != nil {
			err = fmt.Errorf("keys that await a restart of process %s: %w", p.ID, err)
		}
	}
	return p, err
}

// LoadTraffic returns what all processes counted in the time window until now, at most [MaxWindow], to about a minute.
func LoadTraffic(ctx context.Context, d *db.DB, window time.Duration) (Window, error) {
	window = min(window, MaxWindow)
	w := Window{Traffic: Traffic{Apps: map[string]Counts{}}}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var now int64
		err := r.Scan(&now)
		w.Minutes = newMinutes(time.UnixMicro(now), int(window/time.Minute))
		return err
	}, `SELECT stoa_now()`)
	b.Query(func(r db.Row) error {
		var startedAt int64
		var text string
		if err := r.Scan(&startedAt, &text); err != nil {
			return err
		}
		var one Traffic
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			return fmt.Errorf("decode counts: %w", err)
		}
		w.add(one)
		w.addToMinute(time.UnixMicro(startedAt), one)
		return nil
	}, `SELECT started_at, counts FROM traffic WHERE started_at > stoa_now() - CAST($1 AS BIGINT)`, window.Microseconds())
	if err := d.Platform().Do(ctx, &b); err != nil {
		return Window{}, fmt.Errorf("read the traffic: %w", err)
	}
	return w, nil
}

// processTable has the statements with which a process writes about itself.
type processTable struct{ db *db.DB }

// storedPeriod is a row of the table traffic.
type storedPeriod struct {
	number int64
	counts string
}

// write writes the row of a process, and its periods. With sweep it deletes what is older than MaxWindow, of all
// processes.
func (t processTable) write(ctx context.Context, p Process, stopping bool, periods []storedPeriod, sweep bool) error {
	keys := ""
	if len(p.AwaitsRestart) > 0 {
		text, err := json.Marshal(p.AwaitsRestart)
		if err != nil {
			return err
		}
		keys = string(text)
	}
	var b db.Batch
	b.Exec(nil, `INSERT INTO process (id, host, version, build_commit, role, migration, started_at, seen_at, awaits_restart) VALUES ($1, $2, $3, $4, $5, $6, stoa_now(), stoa_now(), $7)
		ON CONFLICT (id) DO UPDATE SET seen_at = stoa_now(), awaits_restart = excluded.awaits_restart`, p.ID, p.Host, p.Version, p.Commit, p.Role, int64(p.Migration), keys)
	if stopping {
		b.Exec(nil, `UPDATE process SET stopping_at = stoa_now() WHERE id = $1 AND stopping_at = 0`, p.ID)
	}
	for _, one := range periods {
		b.Exec(nil, `INSERT INTO traffic (process, period, started_at, counts) VALUES ($1, $2, stoa_now(), $3)
			ON CONFLICT (process, period) DO UPDATE SET counts = excluded.counts`, p.ID, one.number, one.counts)
	}
	if sweep {
		old := MaxWindow.Microseconds()
		b.Exec(nil, `DELETE FROM traffic WHERE started_at < stoa_now() - CAST($1 AS BIGINT)`, old)
		b.Exec(nil, `DELETE FROM process WHERE seen_at < stoa_now() - CAST($1 AS BIGINT)`, old)
	}
	if err := t.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("write about this process: %w", err)
	}
	return nil
}

// remove deletes the row of a process that stops. What it counted stays.
func (t processTable) remove(ctx context.Context, id string) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM process WHERE id = $1`, id)
	if err := t.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("delete the row of this process: %w", err)
	}
	return nil
}
