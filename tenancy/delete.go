package tenancy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"stoa/tenancy/db"
)

const (
	// maintenanceInterval is the time between two runs of the maintenance steps of [Service.Run].
	maintenanceInterval = 30 * time.Second
	// lateWriteWindow is how long after the deletion of an app rows are deleted that a call under way in another
	// process still wrote.
	lateWriteWindow = time.Hour
)

// DeleteApp deletes an app and all of its rows. The app's status becomes [Deleting] first, so that callers are refused
// from then on. When DeleteApp returns nil, nothing is left except the app's audit entries. After an error or a crash
// [Service.Run] completes the deletion, or DeleteApp may be called again.
func (s *Service) DeleteApp(ctx context.Context, actor, name string) error {
	app, err := s.changeApp(ctx, actor, "app.delete", name, false, func(e *appEdit) error {
		e.app.Status = Deleting
		return nil
	})
	if errors.Is(err, ErrPrecondition) && name != DefaultName { // its deletion began earlier
		w, again := s.loadByName(ctx, name)
		if again != nil {
			return again
		}
		app, err = w.app, nil
	}
	if err != nil {
		return err
	}
	return s.eraseApp(ctx, app)
}

// eraseApp deletes the data of an app whose status is Deleting: outside the database first, then the rows, the app's
// own row last. The app's row with the status Deleting is what lets another attempt find the app. The name becomes free
// when the row is gone.
func (s *Service) eraseApp(ctx context.Context, app App) error {
	if s.options.EraseApp != nil {
		if err := s.options.EraseApp(ctx, app); err != nil {
			return fmt.Errorf("delete app %s: %w", app.Name, err)
		}
	}
	for n := int64(1); n > 0; {
		var err error
		if n, err = deleteTenantRows(ctx, s.db.Platform(), app.ID); err != nil {
			return fmt.Errorf("delete app %s: %w", app.Name, err)
		}
	}
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `DELETE FROM admin_call WHERE app_id = $1`, string(app.ID)); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `DELETE FROM app WHERE tenant = $1 AND status = 'deleting'`, string(app.ID))
		if err != nil || n == 0 { // 0: another process deleted it and wrote the entry
			return err
		}
		return InsertAuditEntry(ctx, tx, AuditEntry{Actor: System, Action: "app.deleted", App: app.Name, AppID: app.ID})
	})
	if err != nil {
		return fmt.Errorf("delete app %s: %w", app.Name, err)
	}
	s.publishChange(app.ID)
	s.bus.Publish(TopicName, app.Name)
	s.eraseNeeded.Store(true)
	select {
	case s.appDeleted <- struct{}{}:
	default:
	}
	return nil
}

// eraseDatabaseFiles removes deleted rows from the database's files, once for all deletions since the last time. If
// readers prevent it ([db.ErrBusy]) it is tried again in the next run.
func (s *Service) eraseDatabaseFiles(ctx context.Context) error {
	if !s.eraseNeeded.Swap(false) {
		return nil
	}
	err := db.ErrBusy
	for try := 0; try < 5 && errors.Is(err, db.ErrBusy); try++ {
		err = s.db.EraseDeleted(ctx)
	}
	if err == nil {
		return nil
	}
	s.eraseNeeded.Store(true)
	if errors.Is(err, db.ErrBusy) {
		return nil
	}
	return fmt.Errorf("erase what was deleted from the files of the database: %w", err)
}

// Run performs the background work of the service until ctx ends, whose error it returns: it chains the audit trail,
// completes interrupted deletions, deletes expired idempotency keys, and re-encrypts what former master keys protect.
// It may run in any number of processes. Its steps are independent: an error of one is logged and the step repeated.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { s.runSealLoop(ctx) })
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	for {
		for _, do := range []func(context.Context) error{s.redactEarlierEntries, s.eraseDeletingApps, s.deleteLateRows, s.eraseDatabaseFiles, s.deleteExpiredKeys, s.rewrapDataKeys, s.resealHeads, s.rewrapSealedValues} {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				s.log.ErrorContext(ctx, "clean up after deleted apps", "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-s.appDeleted:
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

// eraseDeletingApps completes the deletion of apps whose status is Deleting, at most 100 in a run.
func (s *Service) eraseDeletingApps(ctx context.Context) error {
	var marked []App
	var b db.Batch
	b.Query(func(row db.Row) error {
		var r appRecord
		err := r.scanRow(row)
		marked = append(marked, r.app)
		return err
	}, `SELECT `+appColumns+` FROM app a WHERE a.status = 'deleting' LIMIT 100`)
	err := s.db.Platform().Do(ctx, &b)
	for _, app := range marked {
		err = errors.Join(err, s.eraseApp(ctx, app))
	}
	return err
}

// deleteLateRows deletes rows that were written for an app after its deletion. The audit entries app.deleted of the
// last lateWriteWindow name the apps; the partial index audit_deleted serves the query.
func (s *Service) deleteLateRows(ctx context.Context) error {
	var gone []db.ID
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		err := row.Scan(&id)
		gone = append(gone, db.ID(id))
		return err
	}, `SELECT app_id FROM audit WHERE action = 'app.deleted' AND at > stoa_now() - $1`, lateWriteWindow.Microseconds())
	err := s.db.Platform().Do(ctx, &b)
	for _, id := range gone {
		n, werr := deleteTenantRows(ctx, s.db.Platform(), id)
		if err = errors.Join(err, werr); n > 0 {
			s.eraseNeeded.Store(true)
			s.log.WarnContext(ctx, "rows of a deleted app were written late and are removed", "app", id, "rows", n)
		}
	}
	return err
}

// rewrapSealedValues re-encrypts the values that other packages sealed; see Options.RewrapSealed.
func (s *Service) rewrapSealedValues(ctx context.Context) error {
	if s.options.RewrapSealed == nil {
		return nil
	}
	return s.options.RewrapSealed(ctx, s.keys)
}

// rewrapDataKeys encrypts every app's data key with the current master key, so that former master keys can be removed.
// Only the data key is rewritten, not the values under it. The condition on the former ciphertext makes concurrent runs
// of several processes harmless.
func (s *Service) rewrapDataKeys(ctx context.Context) error {
	old := map[string][]byte{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var id string
		var key []byte
		err := row.Scan(&id, &key)
		old[id] = key
		return err
	}, `SELECT tenant, data_key FROM app WHERE master_key <> $1 AND status <> 'deleting'`, s.keys.CurrentKeyID())
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return fmt.Errorf("look for data keys under older master keys: %w", err)
	}
	var failed error
	for id, wrapped := range old {
		key, err := s.keys.RewrapDataKey(id, wrapped)
		if err == nil {
			var b db.Batch
			b.Exec(nil, `UPDATE app SET data_key = $3, master_key = $4 WHERE tenant = $1 AND data_key = $2`, id, wrapped, key, s.keys.CurrentKeyID())
			err = s.db.Platform().Do(ctx, &b)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("wrap the data key of app %s anew: %w", id, err))
		}
	}
	return failed
}
