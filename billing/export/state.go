package export

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// claim is the row of an export that this process has claimed.
type claim struct {
	name string
	// since and now are Unix microseconds: when the export began, and the database's time of the claim.
	since int64
	// batch is the number of the last batch; pending means that it is stored and not acknowledged.
	batch   int64
	pending bool
	now     int64
}

// errNotClaimed reports that the claim has expired and another process has taken the export. The transaction is
// undone.
var errNotClaimed = errors.New("another process has claimed the export")

// claimExport claims an export for claimTTL, or renews this process's claim. It returns nil if another process
// has it. The first claim of a name creates the row: usage recorded before it is not exported.
func (e *Exporter) claimExport(ctx context.Context, name string) (*claim, error) {
	var n int64
	x := claim{name: name}
	var b db.Batch
	b.Exec(&n, `INSERT INTO export (name, since, holder, until, batch, pending, rows, refused, error, updated_at)
		VALUES ($1, stoa_now(), $2, stoa_now() + CAST($3 AS BIGINT), 0, FALSE, 0, 0, '', stoa_now())
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, until = excluded.until
		WHERE export.holder = excluded.holder OR export.until < stoa_now()`, name, e.processID, claimTTL.Microseconds())
	b.Query(func(r db.Row) error { return r.Scan(&x.since, &x.batch, &x.pending, &x.now) },
		`SELECT since, batch, pending, stoa_now() FROM export WHERE name = $1`, name)
	if err := e.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("claim export %s: %w", name, err)
	}
	if n == 0 {
		return nil, nil //nolint:nilnil // another process has it
	}
	return &x, nil
}

// limitClaim has this process's claim end after ttl, 0 = at once. The column until is 0 for a claim that was released, and in
// the past for one whose process did not renew it.
func (e *Exporter) limitClaim(ctx context.Context, name string, ttl time.Duration) error {
	var b db.Batch
	b.Exec(nil, `UPDATE export SET until = CASE WHEN CAST($3 AS BIGINT) = 0 THEN 0 ELSE stoa_now() + CAST($3 AS BIGINT) END WHERE name = $1 AND holder = $2`,
		name, e.processID, ttl.Microseconds())
	if err := e.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("limit the claim of export %s: %w", name, err)
	}
	return nil
}

// recordError stores the text of the last failure for [Service.ListExports].
func (e *Exporter) recordError(ctx context.Context, name string, what error) error {
	text := what.Error()
	var b db.Batch
	b.Exec(nil, `UPDATE export SET error = $3, updated_at = stoa_now() WHERE name = $1 AND holder = $2`, name, e.processID, text[:min(len(text), maxErrorBytes)])
	return e.db.Platform().Do(ctx, &b)
}

// composeBatch stores the next batch if there is usage that is in none, and sets x.batch and x.pending. It begins with
// the app after last and returns the last app of the batch, so that each app has its turn even if one app alone could
// fill all batches.
func (e *Exporter) composeBatch(ctx context.Context, x *claim, apps map[db.ID]*appProgress, last db.ID) (db.ID, error) {
	if err := e.readApps(ctx, x, apps); err != nil {
		return last, fmt.Errorf("read the apps: %w", err)
	}
	ids := slices.Sorted(maps.Keys(apps))
	// The smallest string after last.
	next, _ := slices.BinarySearch(ids, last+"\x00")
	var rows []Row
	for some := range slices.Chunk(slices.Concat(ids[next:], ids[:next]), appsPerRead) {
		found, err := e.findUnexported(ctx, x, apps, some, batchSize-len(rows))
		if err != nil {
			return last, fmt.Errorf("look for usage to export: %w", err)
		}
		if rows = append(rows, found...); len(rows) >= batchSize {
			rows = rows[:batchSize]
			break
		}
	}
	if len(rows) == 0 {
		return last, nil
	}
	x.batch, x.pending = x.batch+1, true
	err := e.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		// The conditions on holder, batch and pending are the fence: a process whose claim was taken over updates no
		// row and stores nothing.
		n, err := tx.Exec(ctx, `UPDATE export SET batch = $3, pending = TRUE, updated_at = stoa_now() WHERE name = $1 AND holder = $2 AND batch = $3 - 1 AND NOT pending`,
			x.name, e.processID, x.batch)
		if err != nil {
			return err
		}
		if n == 0 {
			return errNotClaimed
		}
		for _, r := range rows {
			_, err := tx.Exec(ctx, `INSERT INTO usage_exported (tenant, export, task, key, batch, recorded_at) VALUES ($1, $2, $3, $4, $5, $6)`,
				string(r.AppID), x.name, string(r.Task), r.Key, x.batch, r.Recorded.UnixMicro())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return last, fmt.Errorf("store batch %d of export %s: %w", x.batch, x.name, err)
	}
	return rows[len(rows)-1].AppID, nil
}

// findUnexported returns at most n rows of some apps that are in no batch, the oldest of each app first. For an app
// without any it advances the cursor to MaxRecordDelay ago and deletes the marks before it.
func (e *Exporter) findUnexported(ctx context.Context, x *claim, apps map[db.ID]*appProgress, some []db.ID, n int) ([]Row, error) {
	var rows []Row
	has := map[db.ID]bool{}
	var b db.Batch
	for _, id := range some {
		a := apps[id]
		// The cursor bounds the search by index usage_recorded; the marks exclude rows that younger batches have.
		b.Query(func(r db.Row) error {
			row := Row{App: a.name, AppID: a.id, Labels: a.labels}
			err := row.Scan(r)
			rows, has[a.id] = append(rows, row), true
			return err
		}, `SELECT `+usage.Columns+`, recorded_at FROM usage u WHERE (u.tenant || '') = $1 AND u.recorded_at >= $2
			AND NOT EXISTS (SELECT 1 FROM usage_exported x WHERE x.tenant = u.tenant AND x.export = $3 AND x.task = u.task AND x.key = u.key)
			ORDER BY u.recorded_at, u.task, u.key LIMIT $4`, string(id), a.sealed, x.name, n)
	}
	if err := e.db.Platform().Do(ctx, &b); err != nil {
		return nil, err
	}
	sealBefore := x.now - usage.MaxRecordDelay.Microseconds()
	var forget db.Batch
	for _, id := range some {
		if a := apps[id]; !has[id] && a.hasMarks && a.sealed < sealBefore {
			a.sealed, a.hasMarks = sealBefore, false
			sealApp(&forget, x.name, a)
		}
	}
	if forget.IsEmpty() {
		return rows, nil
	}
	return rows, e.db.Platform().Do(ctx, &forget)
}

// sealApp adds to b that the app's cursor advances to a.sealed, and that the marks before it are deleted. The cursor
// never moves back.
func sealApp(b *db.Batch, export string, a *appProgress) {
	b.Exec(nil, `INSERT INTO export_cursor (tenant, export, sealed) VALUES ($1, $2, $3)
		ON CONFLICT (tenant, export) DO UPDATE SET sealed = excluded.sealed WHERE export_cursor.sealed < excluded.sealed`, string(a.id), export, a.sealed)
	b.Exec(nil, `DELETE FROM usage_exported WHERE tenant = $1 AND export = $2 AND recorded_at < $3`, string(a.id), export, a.sealed)
}

// loadBatch returns the rows of the stored batch. If an app was deleted meanwhile, its rows are missing.
func (e *Exporter) loadBatch(ctx context.Context, x *claim, apps map[db.ID]*appProgress) ([]Row, error) {
	rows := []Row{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var row Row
		if err := row.Scan(r, (*string)(&row.AppID)); err != nil {
			return err
		}
		if a := apps[row.AppID]; a != nil {
			row.App, row.Labels = a.name, a.labels
		}
		rows = append(rows, row)
		return nil
	}, `SELECT `+usage.Columns+`, recorded_at, tenant FROM usage u WHERE (u.tenant, u.task, u.key) IN (
			SELECT x.tenant, x.task, x.key FROM usage_exported x WHERE x.export = $1 AND x.batch = $2)
		ORDER BY u.tenant, u.recorded_at, u.task, u.key`, x.name, x.batch)
	if err := e.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read batch %d of export %s: %w", x.batch, x.name, err)
	}
	return rows, nil
}

// acknowledgeBatch marks the batch as delivered, if this process still has the claim, and then advances the cursors of
// its apps. A crash in between is harmless: the marks still exclude the rows.
func (e *Exporter) acknowledgeBatch(ctx context.Context, x *claim, apps map[db.ID]*appProgress, rows []Row, refused int) error {
	var n int64
	var b db.Batch
	b.Exec(&n, `UPDATE export SET pending = FALSE, rows = rows + $4, refused = refused + $5, error = '', updated_at = stoa_now()
		WHERE name = $1 AND holder = $2 AND batch = $3 AND pending`, x.name, e.processID, x.batch, len(rows)-refused, refused)
	if err := e.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("acknowledge batch %d of export %s: %w", x.batch, x.name, err)
	}
	if n == 0 {
		return errNotClaimed
	}
	last := map[db.ID]int64{}
	for _, r := range rows {
		last[r.AppID] = max(last[r.AppID], r.Recorded.UnixMicro())
	}
	var seals db.Batch
	for id, recorded := range last {
		if a := apps[id]; a != nil {
			// Not beyond MaxRecordDelay ago: a row with an earlier recorded_at may still become visible.
			a.sealed, a.hasMarks = max(a.sealed, min(recorded, x.now-usage.MaxRecordDelay.Microseconds())), true
			sealApp(&seals, x.name, a)
		}
	}
	if len(last) == 0 {
		return nil
	}
	return e.db.Platform().Do(ctx, &seals)
}
