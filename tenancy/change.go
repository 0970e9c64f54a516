package tenancy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// maxChangeAttempts bounds how often a change is repeated because another change of the app was committed first.
const maxChangeAttempts = 10

// errStale reports that the app's generation changed between reading and writing; the change is repeated. It never
// leaves this package.
var errStale = errors.New("changed meanwhile")

// appEdit is a change under way. The embedded appState is the modified copy; previous is the app as it was read.
type appEdit struct {
	*appState
	previous *appState
	// secretsToStore are the secrets to insert or replace, by name; secretsToDelete are the names of those to remove.
	secretsToStore  map[string]string
	secretsToDelete []string
	// revokedSubject, if not nil, is the subject whose tokens are refused from now on; "" revokes all of the app's
	// tokens.
	revokedSubject *string
	// rebuild means that something changes which a build reads besides the configuration; it increments inputs.
	rebuild bool
	// rolesChanged means that the app's roles are to be written.
	rolesChanged bool
	// additional is run in the same transaction, for changes in other tables; it may be nil.
	additional func(ctx context.Context, tx *db.Tx, id db.ID) error
	// detail becomes the detail of the audit entry. It must not contain secrets.
	detail map[string]any
}

// setConfig makes config the next revision, unless it is the same text as the current one.
func (e *appEdit) setConfig(config []byte) {
	if string(config) != string(e.previous.config) {
		e.config = config
		e.app.Revision = e.previous.app.Revision + 1
	}
}

// changeApp reads the named app, applies f to a copy and writes the result in one transaction with an audit entry. If
// the app was changed by another process or goroutine meanwhile it starts again, so f may run several times; after
// maxChangeAttempts it returns [ErrConflict]. With dryRun it returns the result of f without writing. The default app
// and an app whose deletion has begun are refused with [agentsvc.CodePrecondition].
func (s *store) changeApp(ctx context.Context, actor audit.Actor, action, name string, dryRun bool, f func(e *appEdit) error) (App, error) {
	if name == DefaultName {
		return App{}, errDefaultAppChange
	}
	for range maxChangeAttempts {
		previous, err := s.loadByName(ctx, name)
		if err != nil {
			return App{}, err
		}
		if previous.app.Status == Deleting {
			return App{}, agentsvc.NewError(agentsvc.CodePrecondition, "the app %s is being deleted", name)
		}
		e := previous.newEdit()
		if err := f(e); err != nil {
			return App{}, err
		}
		if err := s.describeDropped(ctx, e); err != nil {
			return App{}, err
		}
		if dryRun {
			return s.maskedApp(e.app, e.config), nil
		}
		app, err := s.storeEdit(ctx, actor, action, e)
		if errors.Is(err, errStale) {
			continue
		}
		if err != nil {
			return App{}, err
		}
		s.publishChange(app.ID)
		app.Config = e.app.Config
		return s.maskedApp(app, e.config), nil
	}
	return App{}, ErrConflict
}

var errDefaultAppChange = agentsvc.NewError(agentsvc.CodePrecondition, "the default app is changed by its config file alone")

// newEdit returns an edit of w. The secrets are copied; other maps and slices of the app must be replaced, not
// modified.
func (s *appState) newEdit() *appEdit {
	next := *s
	next.secrets = maps.Clone(s.secrets)
	return &appEdit{appState: &next, previous: s, secretsToStore: map[string]string{}, detail: map[string]any{}}
}

// storeEdit writes e in one transaction and returns the app as the database then has it. It returns errStale if the app
// is not as it was read. The app's row is written before all others: its lock serialises concurrent changes of the app.
func (s *store) storeEdit(ctx context.Context, actor audit.Actor, action string, e *appEdit) (App, error) {
	s.describeEdit(e)
	var after appRecord
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if e.app.Auth != e.previous.app.Auth {
			if err := s.checkIssuerUnique(ctx, tx, &e.app); err != nil {
				return err
			}
		}
		if err := updateApp(ctx, tx, e); err != nil {
			return err
		}
		if e.app.Plan != e.previous.app.Plan {
			if err := insertPlanChange(ctx, tx, &e.app); err != nil {
				return err
			}
		}
		if e.app.Revision != e.previous.app.Revision {
			if err := insertRevision(ctx, tx, actor, e.appState); err != nil {
				return err
			}
		}
		if err := storeSecrets(ctx, tx, e); err != nil {
			return err
		}
		if e.rolesChanged {
			if err := storeRoles(ctx, tx, &e.app); err != nil {
				return err
			}
		}
		if e.revokedSubject != nil {
			if err := insertRevocation(ctx, tx, e.app.ID, *e.revokedSubject); err != nil {
				return err
			}
		}
		if e.additional != nil {
			if err := e.additional(ctx, tx, e.app.ID); err != nil {
				return err
			}
		}
		entry := audit.Entry{Actor: actor, Action: action, App: e.app.Name, AppID: e.app.ID, Detail: e.detail}
		if err := audit.Insert(ctx, tx, entry); err != nil {
			return err
		}
		return readApp(ctx, tx, e.app.ID, &after)
	})
	if err != nil {
		switch {
		case errors.Is(err, errStale), errors.As(err, new(*agentsvc.Error)):
			return App{}, err
		case db.IsDuplicate(err):
			return App{}, errIssuerTaken
		}
		return App{}, fmt.Errorf("change app %s: %w", e.app.Name, err)
	}
	return after.app, nil
}

// updateApp writes the app's row. The condition on generation is the optimistic lock: no row is updated, and errStale
// is returned, if any change was committed since the app was read. auth_key has a unique index, so two apps cannot
// register the same issuer concurrently.
func updateApp(ctx context.Context, tx *db.Tx, e *appEdit) error {
	grants, labels, rates, err := e.app.encodeColumns()
	if err != nil {
		return err
	}
	auth, err := e.app.Auth.encodeColumn()
	if err != nil {
		return err
	}
	n := 0
	if e.rebuild {
		n = 1
	}
	changed, err := tx.Exec(ctx, `UPDATE app SET display_name = $3, status = $4, revision = $5, inputs = inputs + $6,
			generation = generation + 1, grants = $7, plan = $8, labels = $9, weight = $10, max_concurrent_tasks = $11, queue_depth = $12, rates = $13,
			auth = $14, auth_key = $15, updated_at = stoa_now()
		WHERE tenant = $1 AND generation = $2`,
		string(e.app.ID), e.previous.app.Generation, e.app.DisplayName, string(e.app.Status), e.app.Revision, n, grants, e.app.Plan, labels,
		e.app.Limits.Weight, e.app.Limits.MaxConcurrentTasks, e.app.Limits.QueueDepth, rates, auth, e.app.Auth.uniqueKey(e.app.Name))
	if err == nil && changed == 0 {
		err = errStale
	}
	return err
}

// readApp reads the app's row within the transaction, with the times that the database set.
func readApp(ctx context.Context, tx *db.Tx, id db.ID, into *appRecord) error {
	return tx.Query(ctx, func(row db.Row) error { return into.scanRow(row) },
		`SELECT `+appColumns+` FROM app a WHERE a.tenant = $1`, string(id))
}

// insertRevision stores the configuration, encrypted, as the app's current revision and deletes the ones that are more
// than maxRevisions older.
func insertRevision(ctx context.Context, tx *db.Tx, actor audit.Actor, w *appState) error {
	sealed := w.fieldCipher.Seal(configField(w.app.Revision), w.config)
	_, err := tx.Exec(ctx, `INSERT INTO app_revision (tenant, revision, config, actor, created_at) VALUES ($1, $2, $3, $4, stoa_now())`,
		string(w.app.ID), w.app.Revision, sealed, actor.Name)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM app_revision WHERE tenant = $1 AND revision <= $2`, string(w.app.ID), w.app.Revision-maxRevisions)
	return err
}

// storeSecrets writes and deletes secrets. Values are encrypted with the app's data key and bound to their name.
func storeSecrets(ctx context.Context, tx *db.Tx, e *appEdit) error {
	for name, value := range e.secretsToStore {
		_, err := tx.Exec(ctx, `INSERT INTO app_secret (tenant, name, value, created_at, updated_at)
			VALUES ($1, $2, $3, stoa_now(), stoa_now())
			ON CONFLICT (tenant, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`,
			string(e.app.ID), name, e.fieldCipher.Seal(secretField(name), []byte(value)))
		if err != nil {
			return err
		}
	}
	for _, name := range e.secretsToDelete {
		if _, err := tx.Exec(ctx, `DELETE FROM app_secret WHERE tenant = $1 AND name = $2`, string(e.app.ID), name); err != nil {
			return err
		}
	}
	return nil
}

// encodeColumns returns the JSON texts of the columns grants, labels and rates.
func (a *App) encodeColumns() (grants, labels, rates string, err error) {
	g, err := json.Marshal(a.Grants)
	if err != nil {
		return "", "", "", err
	}
	l, err := json.Marshal(a.Labels)
	if err != nil {
		return "", "", "", err
	}
	rates, err = encodeRates(a.Limits.Rates)
	return string(g), string(l), rates, err
}

// publishChange makes all processes reload the app. Call it after the commit.
func (s *store) publishChange(id db.ID) { s.bus.Publish(TopicApp, string(id)) }
