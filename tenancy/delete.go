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
	// maintenanceInterval is the time between two looks for what was left undone.
	maintenanceInterval = 30 * time.Second
	// lateWriteWindow is how long after its end an app's rows are looked for again: what a call that was under way in
	// another process still wrote.
	lateWriteWindow = time.Hour
)

// DeleteApp removes an app and every row of it. It is refused to callers from the first moment; when Delete returns nil
// nothing is left but its audit entries. After an error or a crash [Service.Run] completes it.
func (s *Service) DeleteApp(ctx context.Context, actor, name string) error {
	app, err := s.changeApp(ctx, actor, "app.delete", name, false, func(e *appEdit) error {
		e.app.Status = Deleting
		return nil
	})
	if errors.Is(err, ErrPrecondition) && name != DefaultName { // its deletion has begun already
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

// eraseApp removes everything of an app that is marked for it, the app's own row last.
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
		if err != nil || n == 0 { // 0: another process was faster
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

// eraseDatabaseFiles has what was deleted leave the files of the database, once for all deletions since the last time. Where somebody
// reads it is tried again the next time.
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

// Run chains the audit trail, completes deletions that were cut off, forgets idempotency keys that are too old and wraps
// data keys by the current master key, now and then until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { s.runSealLoop(ctx) })
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	for {
		for _, do := range []func(context.Context) error{s.redactEarlierEntries, s.eraseDeletingApps, s.deleteLateRows, s.eraseDatabaseFiles, s.deleteExpiredKeys, s.rewrapDataKeys, s.resealHeads, s.rewrapSealedValues} {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				s.log.ErrorContext(ctx, "tidy up after apps", "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-s.appDeleted:
			// More deletions may follow: files are rebuilt once for those of a second.
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

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

// deleteLateRows removes what was written for apps after they were gone.
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

// rewrapSealedValues is rewrap for what other rooms have sealed.
func (s *Service) rewrapSealedValues(ctx context.Context) error {
	if s.options.RewrapSealed == nil {
		return nil
	}
	return s.options.RewrapSealed(ctx, s.keys)
}

// rewrapDataKeys makes the current master key the one that wraps every app's data key, so that older ones can go.
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
