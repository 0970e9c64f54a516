package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
	"stoa/tenancy/keyring"
)

// appRecord is a row of the table app, with the configuration of one revision where a query joins it.
type appRecord struct {
	app App
	// dataKey is the app's data key, wrapped by a master key.
	dataKey []byte
	// config is the encrypted configuration; nil if the query did not select it or the revision is not stored.
	config []byte
}

// appColumns are the columns that [appRecord.scanRow] reads, in its order, of the table app under the alias a. The
// limits of the plan are subqueries instead of a join, so that a query needs to name only the table app.
const appColumns = `a.tenant, a.name, a.display_name, a.status, a.revision, a.inputs, a.generation, a.grants, a.plan, a.labels,
	a.weight, a.max_concurrent_tasks, a.queue_depth, a.rates, a.auth, a.data_key, a.created_at, a.updated_at,
	COALESCE((SELECT p.weight FROM plan p WHERE p.name = a.plan), 0), COALESCE((SELECT p.max_concurrent_tasks FROM plan p WHERE p.name = a.plan), 0),
	COALESCE((SELECT p.queue_depth FROM plan p WHERE p.name = a.plan), 0)`

// scanRow reads a row of appColumns; more are the destinations of further columns.
func (r *appRecord) scanRow(row db.Row, more ...any) error {
	var id, status, grants, labels, rates, auth string
	var created, updated int64
	a := &r.app
	dest := append([]any{&id, &a.Name, &a.DisplayName, &status, &a.Revision, &a.Inputs, &a.Generation, &grants, &a.Plan, &labels,
		&a.Limits.Weight, &a.Limits.MaxConcurrentTasks, &a.Limits.QueueDepth, &rates, &auth, &r.dataKey, &created, &updated,
		&a.planLimits.Weight, &a.planLimits.MaxConcurrentTasks, &a.planLimits.QueueDepth}, more...)
	if err := row.Scan(dest...); err != nil {
		return err
	}
	a.ID, a.Status, a.CreatedAt, a.UpdatedAt = db.ID(id), Status(status), timeFromMicros(created), timeFromMicros(updated)
	a.Grants, a.Labels = grant.List{}, map[string]string{}
	if err := json.Unmarshal([]byte(grants), &a.Grants); err != nil {
		return fmt.Errorf("grants of app %s: %w", id, err)
	}
	if err := json.Unmarshal([]byte(labels), &a.Labels); err != nil {
		return fmt.Errorf("labels of app %s: %w", id, err)
	}
	if err := a.Auth.decodeColumn(auth); err != nil {
		return fmt.Errorf("issuer of app %s: %w", id, err)
	}
	var err error
	if a.Limits.Rates, err = decodeRates(rates); err != nil {
		return fmt.Errorf("limits of app %s: %w", id, err)
	}
	return nil
}

// relatedRows are an app's rows in other tables.
type relatedRows struct {
	// sealed maps the names of secrets to their encrypted values.
	sealed map[string][]byte
	// revocations maps subjects to Unix seconds; see [App.IsTokenRevoked].
	revocations map[string]int64

	roles        []Role
	rolesVersion int64
}

// appState is an app with its decrypted configuration and secrets. fieldCipher is nil, and both are empty, if the app
// is being deleted.
type appState struct {
	appRecord
	fieldCipher *keyring.FieldCipher
	config      []byte
	secrets     map[string]string
}

// loadByName reads an app completely, in one round trip, for a change by the operator. It returns an app that is being
// deleted as well. An unknown or malformed name is [agentsvc.CodeNotFound].
func (s *store) loadByName(ctx context.Context, name string) (*appState, error) {
	if !IsValidAppName(name) {
		return nil, errNoApp
	}
	var b db.Batch
	var r appRecord
	found := false
	b.Query(func(row db.Row) error {
		found = true
		return r.scanRow(row, &r.config)
	}, `SELECT `+appColumns+`, v.config FROM app a
		LEFT JOIN app_revision v ON v.tenant = a.tenant AND v.revision = a.revision WHERE a.name = $1`, name)
	side := relatedRows{}
	side.queryAll(&b, `(SELECT tenant FROM app WHERE name = $1)`, name)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read app %s: %w", name, err)
	}
	if !found {
		return nil, errNoApp
	}
	return s.decryptState(&r, &side, r.app.Revision)
}

// loadByID reads an app completely, in one round trip, through the app's own handle, so that row-level security
// applies. revision 0 is the current one. An app that is being deleted is [agentsvc.CodeNotFound].
func (s *store) loadByID(ctx context.Context, id db.ID, revision int64) (*appState, error) {
	return s.loadByIDWhere(ctx, id, revision, func(status Status) bool { return status != Deleting })
}

// loadByIDWhere is loadByID for an app whose status is accepted.
func (s *store) loadByIDWhere(ctx context.Context, id db.ID, revision int64, accepted func(Status) bool) (*appState, error) {
	var b db.Batch
	var r appRecord
	found := false
	b.Query(func(row db.Row) error {
		found = true
		return r.scanRow(row, &r.config)
	}, `SELECT `+appColumns+`, v.config FROM app a
		LEFT JOIN app_revision v ON v.tenant = a.tenant AND v.revision = COALESCE(NULLIF(CAST($2 AS BIGINT), 0), a.revision)
		WHERE a.tenant = $1`, string(id), revision)
	side := relatedRows{}
	side.queryAll(&b, `$1`, string(id))
	if err := s.db.Tenant(id).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read app %s: %w", id, err)
	}
	if !found || !accepted(r.app.Status) {
		return nil, errNoApp
	}
	if revision == 0 {
		revision = r.app.Revision
	}
	return s.decryptState(&r, &side, revision)
}

// queryAll adds to b the queries of an app's related rows. tenant is an SQL expression of this package that yields the
// app's id from the parameter $1, whose value is arg.
func (r *relatedRows) queryAll(b *db.Batch, tenant, arg string) {
	r.sealed = map[string][]byte{}
	b.Query(func(row db.Row) error {
		var name string
		var value []byte
		err := row.Scan(&name, &value)
		r.sealed[name] = value
		return err
	}, `SELECT name, value FROM app_secret WHERE tenant = `+tenant, arg)
	r.queryShared(b, tenant, arg)
}

// queryShared adds the queries of those related rows that the default app has as well: revocations and roles.
func (r *relatedRows) queryShared(b *db.Batch, tenant, arg string) {
	r.revocations = map[string]int64{}
	b.Query(r.scanRevocation, `SELECT subject, not_before FROM app_mark WHERE tenant = `+tenant, arg)
	b.Query(func(row db.Row) error {
		var roles string
		if err := row.Scan(&roles, &r.rolesVersion); err != nil {
			return err
		}
		return json.Unmarshal([]byte(roles), &r.roles)
	}, `SELECT roles, version FROM app_role WHERE tenant = `+tenant, arg)
}

// copyTo sets the fields of app that were read from related rows.
func (r *relatedRows) copyTo(app *App) {
	app.revocations, app.Roles, app.RolesVersion = r.revocations, r.roles, r.rolesVersion
}

// scanRevocation reads a row of app_mark. The time is cut to the second, as in tokens.
func (r *relatedRows) scanRevocation(row db.Row) error {
	var subject string
	var at int64
	err := row.Scan(&subject, &at)
	r.revocations[subject] = timeFromMicros(at).Unix()
	return err
}

// decryptState decrypts the configuration and the secrets of an app that was read at revision. For an app that is being
// deleted it decrypts nothing, since any of its rows may be gone. A revision that is not stored is [agentsvc.CodeNotFound].
func (s *store) decryptState(r *appRecord, side *relatedRows, revision int64) (*appState, error) {
	w := &appState{appRecord: *r, secrets: map[string]string{}}
	w.app.Revision = revision
	side.copyTo(&w.app)
	if r.app.Status == Deleting {
		return w, nil
	}
	if r.config == nil {
		return nil, agentsvc.NewError(agentsvc.CodeNotFound, "there is no revision %d of app %s", revision, r.app.Name)
	}
	var err error
	if w.fieldCipher, err = s.keys.NewFieldCipher(string(r.app.ID), r.dataKey); err != nil {
		return nil, fmt.Errorf("app %s: %w", r.app.Name, err)
	}
	if w.config, err = w.fieldCipher.Open(configField(revision), r.config); err != nil {
		return nil, fmt.Errorf("configuration of app %s: %w", r.app.Name, err)
	}
	for name, sealed := range side.sealed {
		plain, err := w.fieldCipher.Open(secretField(name), sealed)
		if err != nil {
			return nil, fmt.Errorf("secret %s of app %s: %w", name, r.app.Name, err)
		}
		w.secrets[name] = string(plain)
	}
	return w, nil
}

// configField and secretField return the fields that ciphertexts are bound to; see [keyring.Keyring]. A configuration
// is bound to its revision.
func configField(revision int64) string { return fmt.Sprintf("config/%d", revision) }
func secretField(name string) string    { return "secret/" + name }

// timeFromMicros converts the database's microseconds since 1970.
func timeFromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

var errNoApp = agentsvc.NewError(agentsvc.CodeNotFound, "no such app")

// findAppID returns the id of the app with that name, "" if there is none. It does not look into a cache.
func (s *store) findAppID(ctx context.Context, name string) (db.ID, error) {
	if name == DefaultName {
		if s.defaultApp.Load() == nil {
			return "", nil
		}
		return DefaultID, nil
	}
	var id string
	var b db.Batch
	b.Query(func(row db.Row) error { return row.Scan(&id) }, `SELECT tenant FROM app WHERE name = $1`, name)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return "", fmt.Errorf("look up app %s: %w", name, err)
	}
	return db.ID(id), nil
}

// requireAppID returns the id of the app with that name, or [agentsvc.CodeNotFound].
func (s *store) requireAppID(ctx context.Context, name string) (db.ID, error) {
	if !IsValidAppName(name) {
		return "", errNoApp
	}
	id, err := s.findAppID(ctx, name)
	if err == nil && id == "" {
		err = errNoApp
	}
	return id, err
}

// auditHasher returns the hasher of an app that was read, the zero Hasher if the app is being deleted.
func (s *appState) auditHasher() keyring.Hasher {
	if s.fieldCipher == nil {
		return keyring.Hasher{}
	}
	return s.fieldCipher.Hasher()
}
