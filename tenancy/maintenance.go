package tenancy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

const (
	// maintenanceInterval is the time between two runs of the maintenance steps of [maintenance.run].
	maintenanceInterval = 30 * time.Second
	// lateWriteWindow is how long after the deletion of an app rows are deleted that a call under way in another
	// process still wrote.
	lateWriteWindow = time.Hour
)

// maintenance completes deletions and re-encrypts what former master keys protect.
type maintenance struct {
	store *store
	trail *audit.Trail
	// eraseNeeded is set after rows were deleted that may still be readable in the database's files, and cleared by
	// [maintenance.eraseDatabaseFiles].
	eraseNeeded atomic.Bool
	// appDeleted (capacity 1) wakes run after a deletion in this process, so that files are rebuilt soon.
	appDeleted chan struct{}
}

// run performs the steps of the maintenance every maintenanceInterval, and soon after a deletion in this process, until
// ctx ends, whose error it returns. The steps are independent: an error of one is logged and the step repeated.
func (m *maintenance) run(ctx context.Context) error {
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	for {
		for _, do := range []func(context.Context) error{m.eraseDeletingApps, m.deleteLateRows, m.eraseDatabaseFiles, m.rewrapDataKeys, m.trail.Reseal, m.rewrapSealedValues} {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				m.store.log.ErrorContext(ctx, "clean up after apps", "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-m.appDeleted:
			// More deletions may follow: wait a second, so that the files are rebuilt once for all of them.
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eraseDatabaseFiles removes deleted rows from the database's files, once for all deletions since the last time. If
// readers prevent it ([db.ErrBusy]) it is tried again in the next run.
func (m *maintenance) eraseDatabaseFiles(ctx context.Context) error {
	if !m.eraseNeeded.Swap(false) {
		return nil
	}
	err := db.ErrBusy
	for try := 0; try < 5 && errors.Is(err, db.ErrBusy); try++ {
		err = m.store.db.EraseDeleted(ctx)
	}
	if err == nil {
		return nil
	}
	m.eraseNeeded.Store(true)
	if errors.Is(err, db.ErrBusy) {
		return nil
	}
	return fmt.Errorf("erase what was deleted from the files of the database: %w", err)
}

// eraseDeletingApps completes the deletion of apps whose status is Deleting, at most 100 in a run.
func (m *maintenance) eraseDeletingApps(ctx context.Context) error {
	var marked []App
	var b db.Batch
	b.Query(func(row db.Row) error {
		var r appRecord
		err := r.scanRow(row)
		marked = append(marked, r.app)
		return err
	}, `SELECT `+appColumns+` FROM app a WHERE a.status = 'deleting' LIMIT 100`)
	err := m.store.db.Platform().Do(ctx, &b)
	for _, app := range marked {
		err = errors.Join(err, m.eraseApp(ctx, audit.System, app))
	}
	return err
}

// deleteLateRows deletes rows that were written for an app after its deletion. The audit entries app.deleted of the
// last lateWriteWindow name the apps; the partial index audit_deleted serves the query.
func (m *maintenance) deleteLateRows(ctx context.Context) error {
	var gone []db.ID
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		gone = append(gone, db.ID(id))
		return err
	}, `SELECT app_id FROM audit WHERE action = 'app.deleted' AND at > stoa_now() - $1`, lateWriteWindow.Microseconds())
	err := m.store.db.Platform().Do(ctx, &b)
	for _, id := range gone {
		n, werr := deleteTenantRows(ctx, m.store.db.Platform(), id)
		if err = errors.Join(err, werr); n > 0 {
			m.eraseNeeded.Store(true)
			m.store.log.WarnContext(ctx, "rows of a deleted app were written late and are removed", "tenant", id, "rows", n)
		}
	}
	return err
}

// rewrapSealedValues re-encrypts the values that other packages sealed; see Options.RewrapSealed.
func (m *maintenance) rewrapSealedValues(ctx context.Context) error {
	if m.store.options.RewrapSealed == nil {
		return nil
	}
	return m.store.options.RewrapSealed(ctx, m.store.keys)
}

// rewrapDataKeys encrypts every app's data key with the current master key, so that former master keys can be removed.
// Only the data key is rewritten, not the values under it. The condition on the former ciphertext makes concurrent runs
// of several processes harmless.
func (m *maintenance) rewrapDataKeys(ctx context.Context) error {
	old := map[string][]byte{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		var key []byte
		err := row.Scan(&id, &key)
		old[id] = key
		return err
	}, `SELECT tenant, data_key FROM app WHERE master_key <> $1 AND status <> 'deleting'`, m.store.keys.CurrentKeyID())
	if err := m.store.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for data keys under older master keys: %w", err)
	}
	var failed error
	for id, wrapped := range old {
		key, err := m.store.keys.RewrapDataKey(id, wrapped)
		if err == nil {
			var b db.Batch
			b.Exec(nil, `UPDATE app SET data_key = $3, master_key = $4 WHERE tenant = $1 AND data_key = $2`, id, wrapped, key, m.store.keys.CurrentKeyID())
			err = m.store.db.Platform().Do(ctx, &b)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("rewrap the data key of app %s: %w", id, err))
		}
	}
	return failed
}
