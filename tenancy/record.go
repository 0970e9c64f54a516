package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// appRecord is an app as the database has it.
type appRecord struct {
	app     App
	dataKey []byte
	config  []byte // sealed
}

// Of the columns that selectApp reads, in the order of [appRecord.scanRow].
const appColumns = `a.tenant, a.name, a.display_name, a.status, a.revision, a.inputs, a.generation, a.grants, a.plan, a.labels,
	a.weight, a.max_concurrent_tasks, a.queue_depth, a.rates, a.auth, a.data_key, a.created_at, a.updated_at,
	COALESCE((SELECT p.weight FROM plan p WHERE p.name = a.plan), 0), COALESCE((SELECT p.max_concurrent_tasks FROM plan p WHERE p.name = a.plan), 0),
	COALESCE((SELECT p.queue_depth FROM plan p WHERE p.name = a.plan), 0)`

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

// relatedRows are the rows beside an app's own.
type relatedRows struct {
	sealed      map[string][]byte // secrets
	revocations map[string]int64

	roles        []Role
	rolesVersion int64
}

// appState is an app with all that belongs to it, opened.
type appState struct {
	appRecord
	fieldCipher *FieldCipher
	config      []byte
	secrets     map[string]string
}

// loadByName reads an app and all of it.
func (s *Service) loadByName(ctx context.Context, name string) (*appState, error) {
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

// loadByID reads an app and all of it through the app's own handle. revision 0 is the one in force.
func (s *Service) loadByID(ctx context.Context, id db.ID, revision int64) (*appState, error) {
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
	if !found || r.app.Status == Deleting {
		return nil, errNoApp
	}
	if revision == 0 {
		revision = r.app.Revision
	}
	return s.decryptState(&r, &side, revision)
}

// queryAll adds the reading of all that stands beside an app to b. tenant is SQL of ours that yields the app's id from arg.
func (a *relatedRows) queryAll(b *db.Batch, tenant, arg string) {
	a.sealed = map[string][]byte{}
	b.Query(func(row db.Row) error {
		var name string
		var value []byte
		err := row.Scan(&name, &value)
		a.sealed[name] = value
		return err
	}, `SELECT name, value FROM app_secret WHERE tenant = `+tenant, arg)
	a.queryShared(b, tenant, arg)
}

// queryShared adds the reading of what even the default app has in the database.
func (a *relatedRows) queryShared(b *db.Batch, tenant, arg string) {
	a.revocations = map[string]int64{}
	b.Query(a.scanRevocation, `SELECT subject, not_before FROM app_mark WHERE tenant = `+tenant, arg)
	b.Query(func(row db.Row) error {
		var roles string
		if err := row.Scan(&roles, &a.rolesVersion); err != nil {
			return err
		}
		return json.Unmarshal([]byte(roles), &a.roles)
	}, `SELECT roles, version FROM app_role WHERE tenant = `+tenant, arg)
}

// copyTo gives app what was read beside it.
func (a *relatedRows) copyTo(app *App) {
	app.revocations, app.Roles, app.RolesVersion = a.revocations, a.roles, a.rolesVersion
}

func (a *relatedRows) scanRevocation(row db.Row) error {
	var subject string
	var at int64
	err := row.Scan(&subject, &at)
	a.revocations[subject] = timeFromMicros(at).Unix()
	return err
}

// decryptState decrypts what was read. An app whose deletion has begun may lack anything.
func (s *Service) decryptState(r *appRecord, side *relatedRows, revision int64) (*appState, error) {
	w := &appState{appRecord: *r, secrets: map[string]string{}}
	w.app.Revision = revision
	side.copyTo(&w.app)
	if r.app.Status == Deleting {
		return w, nil
	}
	if r.config == nil {
		return nil, errorOfKind(ErrNotFound, "revision %d of app %s is not there", revision, r.app.Name)
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

func configField(revision int64) string { return fmt.Sprintf("config/%d", revision) }
func secretField(name string) string    { return "secret/" + name }

func timeFromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

var errNoApp = errorOfKind(ErrNotFound, "no such app")
