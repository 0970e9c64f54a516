package tenancy

import (
	"context"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// Revision describes one stored configuration of an app. Its number names that text for ever. The app's generation
// ([Version]) counts changes of any kind, and the epoch of a task changes of who may write to it.
type Revision struct {
	Number int64
	// Actor is who made the revision.
	Actor     string
	CreatedAt time.Time
	// Current is set for the revision in force.
	Current bool
}

// Revisions are the stored configurations of apps.
type Revisions struct{ store *store }

// List returns an app's stored revisions, at most maxRevisions, the newest first; [agentsvc.CodeNotFound] if there is no
// such app. The default app has none.
func (r Revisions) List(ctx context.Context, app string) ([]Revision, error) {
	id, err := r.store.requireAppID(ctx, app)
	if err != nil {
		return nil, err
	}
	return r.ListByID(ctx, id)
}

// ListByID is List for the app with that id.
func (r Revisions) ListByID(ctx context.Context, id db.ID) ([]Revision, error) {
	revisions := []Revision{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var v Revision
		var created int64
		err := row.Scan(&v.Number, &v.Actor, &created, &v.Current)
		v.CreatedAt = timeFromMicros(created)
		revisions = append(revisions, v)
		return err
	}, `SELECT v.revision, v.actor, v.created_at, v.revision = a.revision FROM app_revision v
		JOIN app a ON a.tenant = v.tenant WHERE v.tenant = $1 ORDER BY v.revision DESC`, string(id))
	if err := r.store.db.Tenant(id).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list revisions of app %s: %w", id, err)
	}
	return revisions, nil
}

// Load returns a stored revision of the app with that id, and the app with the masked configuration of that revision. One
// that is not stored is [agentsvc.CodeNotFound].
func (r Revisions) Load(ctx context.Context, id db.ID, number int64) (Revision, App, error) {
	w, err := r.store.loadByID(ctx, id, max(number, 1)) // 0 would be the current one
	if err != nil {
		return Revision{}, App{}, err
	}
	stored, err := r.ListByID(ctx, id)
	if err != nil {
		return Revision{}, App{}, err
	}
	i := slices.IndexFunc(stored, func(v Revision) bool { return v.Number == number })
	if i < 0 {
		return Revision{}, App{}, agentsvc.NewError(agentsvc.CodeNotFound, "there is no revision %d of app %s", number, w.app.Name)
	}
	return stored[i], r.store.maskedApp(w.app, w.config), nil
}

// Restore makes the configuration of an earlier revision the current one, under a new revision number. It must
// load with the present secrets and grants; with dryRun only that is checked. A revision that is no longer stored is
// [agentsvc.CodeNotFound].
func (r Revisions) Restore(ctx context.Context, actor audit.Actor, app string, revision int64, dryRun bool, p Precondition) (App, error) {
	return r.store.changeApp(ctx, actor, "app.restore", app, dryRun, func(e *appEdit) error {
		if err := e.app.checkPrecondition(p); err != nil {
			return err
		}
		if revision < 1 {
			return agentsvc.NewError(agentsvc.CodeNotFound, "revisions begin at 1")
		}
		old, err := r.store.loadByID(ctx, e.app.ID, revision)
		if err != nil {
			return err
		}
		e.detail["restored"] = revision
		e.setConfig(old.config)
		return r.store.checkConfigLoads(ctx, e.config, &e.app, e.secrets)
	})
}

// LoadDeleting is [Service.LoadSnapshot] for an app that is being deleted, for [Options].EraseApp.
func (r Revisions) LoadDeleting(ctx context.Context, id db.ID) (*Snapshot, error) {
	w, err := r.store.loadByIDWhere(ctx, id, 0, func(status Status) bool { return status == Deleting })
	if err != nil {
		return nil, err
	}
	return &Snapshot{App: w.app, Config: w.config, Hasher: w.auditHasher(), secrets: w.secrets}, nil
}

// LoadCurrent returns the app with that id and its masked configuration, read through the app's own handle. It does not
// return the default app.
func (r Revisions) LoadCurrent(ctx context.Context, id db.ID) (App, error) {
	w, err := r.store.loadByID(ctx, id, 0)
	if err != nil {
		return App{}, err
	}
	return r.store.maskedApp(w.app, w.config), nil
}
