package tenancy

import (
	"context"
	"errors"
	"fmt"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// DeleteApp deletes an app and all of its rows. The app's status becomes [Deleting] first, so that callers are refused
// from then on. When DeleteApp returns nil, nothing is left except the app's audit entries. After an error or a crash
// [Service.Run] completes the deletion, or DeleteApp may be called again.
func (s *Service) DeleteApp(ctx context.Context, actor audit.Actor, name string, ifMatch ...string) error {
	return s.maintenance.deleteApp(ctx, actor, "app.delete", name, ifMatch, func(*App) error { return nil })
}

// deleteMovedAction is the action of the audit entry about the deletion of an app that continues elsewhere. The entry is
// also what a completion of the deletion knows that by.
const deleteMovedAction = "app.delete_moved"

// deleteApp is DeleteApp, with an audit entry of action, for an app that check accepts.
func (m *maintenance) deleteApp(ctx context.Context, actor audit.Actor, action, name string, ifMatch []string, check func(*App) error) error {
	app, err := m.store.changeApp(ctx, actor, action, name, false, func(e *appEdit) error {
		if err := e.app.checkTag(ifMatch); err != nil {
			return err
		}
		if err := check(&e.app); err != nil {
			return err
		}
		e.app.Status = Deleting
		return nil
	})
	if errors.Is(err, agentsvc.CodePrecondition) && name != DefaultName { // its deletion may have begun earlier
		w, again := m.store.loadByName(ctx, name)
		switch {
		case again != nil:
			return again
		case w.app.Status != Deleting: // the app is not in the state that the caller demands
			return err
		}
		app, err = w.app, nil
	}
	if err != nil {
		return err
	}
	by := audit.System
	by.Origin = actor.Origin
	return m.eraseApp(ctx, by, app)
}

// eraseApp deletes the data of an app whose status is Deleting: outside the database first, then the rows, the app's
// own row last; by is the actor of the audit entries. The app's row with the status Deleting is what lets another
// attempt find the app. The name becomes free when the row is gone.
func (m *maintenance) eraseApp(ctx context.Context, by audit.Actor, app App) error {
	moved, err := m.isMoved(ctx, app.ID)
	if err != nil {
		return fmt.Errorf("delete app %s: %w", app.Name, err)
	}
	if m.store.options.EraseApp != nil {
		if err := m.store.options.EraseApp(ctx, by, app, moved); err != nil {
			return fmt.Errorf("delete app %s: %w", app.Name, err)
		}
	}
	for n := int64(1); n > 0; {
		var err error
		if n, err = deleteTenantRows(ctx, m.store.db.Platform(), app.ID); err != nil {
			return fmt.Errorf("delete app %s: %w", app.Name, err)
		}
	}
	err = m.store.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM app WHERE tenant = $1 AND status = 'deleting'`, string(app.ID))
		if err != nil || n == 0 { // 0: another process deleted it and wrote the entry
			return err
		}
		return audit.Insert(ctx, tx, audit.Entry{Actor: by, Action: "app.deleted", App: app.Name, AppID: app.ID})
	})
	if err != nil {
		return fmt.Errorf("delete app %s: %w", app.Name, err)
	}
	m.store.publishChange(app.ID)
	m.store.bus.Publish(topicName, app.Name)
	m.eraseNeeded.Store(true)
	select {
	case m.appDeleted <- struct{}{}:
	default:
	}
	return nil
}

// isMoved reports whether the app is being deleted by [Moves.DeleteApp].
func (m *maintenance) isMoved(ctx context.Context, app db.ID) (moved bool, err error) {
	var b db.Batch
	b.Query(func(db.Row) error { moved = true; return nil }, `SELECT 1 FROM audit WHERE app_id = $1 AND action = $2 LIMIT 1`, string(app), deleteMovedAction)
	return moved, m.store.db.Platform().Do(ctx, &b)
}
