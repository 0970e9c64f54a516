package tenancy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
	// maxNamedApps bounds how many apps an error of the maintenance names.
	maxNamedApps = 10
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

// maintenanceStep is a step of the maintenance. failure is the text of its last error, "" after a success; only the
// goroutine that performs the steps uses it.
type maintenanceStep struct {
	name    string
	do      func(context.Context) error
	failure string
}

// newSteps returns the steps in their order. They are independent of each other.
func (m *maintenance) newSteps() []maintenanceStep {
	return []maintenanceStep{
		{name: "erase deleted apps", do: m.eraseDeletingApps}, {name: "delete late rows", do: m.deleteLateRows},
		{name: "erase files of the database", do: m.eraseDatabaseFiles}, {name: "rewrap data keys", do: m.rewrapDataKeys},
		{name: "reseal the audit trail", do: m.trail.Reseal}, {name: "rewrap sealed values", do: m.rewrapSealedValues},
	}
}

// perform performs a step and logs its error if it is another one than the last time, and once that the step succeeds
// again: what an operator must repair, such as a missing master key, fails every maintenanceInterval with the same error.
// An outage of the database has a line of its own and is no change.
func (s *maintenanceStep) perform(ctx context.Context, log *slog.Logger) {
	err := s.do(ctx)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if ctx.Err() != nil || db.IsOutage(err) || text == s.failure {
		return
	}
	s.failure = text
	if err == nil {
		log.InfoContext(ctx, "the maintenance of apps succeeds again", "step", s.name)
		return
	}
	log.ErrorContext(ctx, "the maintenance of apps failed: it is repeated, and logged again when its error changes", "step", s.name, "error", err)
}

// run performs the steps of the maintenance every maintenanceInterval, and soon after a deletion in this process, until
// ctx ends, whose error it returns. An error of a step is logged and the step repeated.
func (m *maintenance) run(ctx context.Context) error {
	tick := time.NewTicker(maintenanceInterval)
	defer tick.Stop()
	steps := m.newSteps()
	for {
		for i := range steps {
			steps[i].perform(ctx, m.store.log)
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
	var failed []error
	// In order, so that the same failure has the same text, see [maintenanceStep.perform].
	for _, id := range slices.Sorted(maps.Keys(old)) {
		wrapped := old[id]
		key, err := m.store.keys.RewrapDataKey(id, wrapped)
		if err == nil {
			var b db.Batch
			b.Exec(nil, `UPDATE app SET data_key = $3, master_key = $4 WHERE tenant = $1 AND data_key = $2`, id, wrapped, key, m.store.keys.CurrentKeyID())
			err = m.store.db.Platform().Do(ctx, &b)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("rewrap the data key of app %s: %w", id, err))
		}
	}
	if more := len(failed) - maxNamedApps; more > 0 {
		failed = append(failed[:maxNamedApps], fmt.Errorf("the same for %d more apps", more))
	}
	return errors.Join(failed...)
}
