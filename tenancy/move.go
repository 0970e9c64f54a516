package tenancy

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Moves are the changes of apps that move between installations. Package transfer has the files.
type Moves struct{ service *Service }

// ImportedApp is an app of another installation that is to become one of this installation, as its file has it. Its values
// are untrusted.
type ImportedApp struct {
	ID db.ID
	// Text and Number return the value of a column of the app's row in table app, "" or 0 if the file has none.
	Text   func(column string) string
	Number func(column string) int64
	// DataKey is the app's data key, wrapped by a master key of Keys. Config and Secrets are encrypted with it: the
	// configuration of the app's current revision, and the values of all secrets by name.
	DataKey []byte
	Config  []byte
	Secrets map[string][]byte
	Keys    *keyring.Keyring
}

// newImportError returns an error about a row of table app that no installation writes.
func newImportError(format string, args ...any) error {
	return agentsvc.NewInvalidError("app", format, args...)
}

// CheckImport checks an imported app as [Service.CreateApp] checks a draft, and that it is suspended, and returns it. With
// dropGrants the app gets no grants, otherwise those of the file. It writes nothing.
func (m Moves) CheckImport(ctx context.Context, in ImportedApp, dropGrants bool) (App, error) {
	if id, err := uuid.Parse(string(in.ID)); err != nil || id.String() != string(in.ID) {
		return App{}, newImportError("the id %.63q is not that of an app", in.ID)
	}
	var r appRecord
	err := r.scanRow(importedRow{in})
	switch {
	case err != nil:
		return App{}, newImportError("the row of the app is not readable")
	case r.app.Status != Suspended:
		return App{}, newImportError("the app in the file is not suspended: export it from where it is suspended")
	case in.Text("auth_key") != r.app.Auth.uniqueKey(r.app.Name):
		return App{}, newImportError("the key of the app's issuer is not that of its issuer")
	}
	if dropGrants {
		r.app.Grants = nil
	}
	limits := LimitsChange{Weight: &r.app.Limits.Weight, MaxConcurrentTasks: &r.app.Limits.MaxConcurrentTasks, QueueDepth: &r.app.Limits.QueueDepth, Rates: r.app.Limits.Rates}
	d := Draft{
		Name: r.app.Name, DisplayName: r.app.DisplayName, Secrets: map[string]string{}, Grants: r.app.Grants, Plan: r.app.Plan, Limits: limits,
		Auth: r.app.Auth, Labels: r.app.Labels,
	}
	if err := in.decrypt(&d, r.app.Revision); err != nil {
		return App{}, err
	}
	checked, err := d.check(ctx, m.service)
	if err != nil {
		return App{}, err
	}
	r.app.Grants, r.app.Config.Warnings = checked.Grants, checked.Config.Warnings
	return r.app, nil
}

// decrypt sets the configuration and the secrets of d.
func (in *ImportedApp) decrypt(d *Draft, revision int64) error {
	fields, err := in.Keys.NewFieldCipher(string(in.ID), in.DataKey)
	if err != nil {
		return newImportError("the app's data key cannot be opened")
	}
	if d.Config, err = fields.Open(configField(revision), in.Config); err != nil {
		return newImportError("the configuration of revision %d, the current one, is missing or cannot be opened", revision)
	}
	for name, sealed := range in.Secrets {
		plain, err := fields.Open(secretField(name), sealed)
		if err != nil {
			return newImportError("the secret %.63q cannot be opened", name)
		}
		d.Secrets[name] = string(plain)
	}
	return nil
}

// EncodeGrants returns the value of the column grants for an imported app.
func (a *App) EncodeGrants() (string, error) {
	text, err := json.Marshal(a.Grants)
	return string(text), err
}

// RecordImport completes an import in the transaction that has inserted the app's rows: it checks that no other app has the
// app's issuer, revokes the tokens of a former app of the same name, and writes the entry in the audit trail.
func (m Moves) RecordImport(ctx context.Context, tx *db.Tx, actor audit.Actor, a *App, detail map[string]any) error {
	if err := m.service.store.checkIssuerUnique(ctx, tx, a); err != nil {
		return err
	}
	if err := revokeFormerTokens(ctx, tx, a); err != nil {
		return err
	}
	return audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "app.import", App: a.Name, AppID: a.ID, Detail: detail})
}

// PublishImport makes all processes notice an imported app. Call it after the commit.
func (m Moves) PublishImport(a *App) {
	m.service.store.publishChange(a.ID)
	m.service.store.bus.Publish(topicName, a.Name)
}

// DeleteApp is [Service.DeleteApp] for an app that was imported into another installation: its accounts are not
// settled here, and what it has outside this database, such as vectors, stays, because it belongs to the app there. The
// app must be suspended, so that nothing has happened since its export; the error is otherwise [agentsvc.CodePrecondition].
func (m Moves) DeleteApp(ctx context.Context, actor audit.Actor, name string, ifMatch ...string) error {
	return m.service.maintenance.deleteApp(ctx, actor, deleteMovedAction, name, ifMatch, func(a *App) error {
		if a.Status == Suspended {
			return nil
		}
		return agentsvc.NewError(agentsvc.CodePrecondition, "the app %s is %s: an app that was moved is suspended since its export", a.Name, a.Status)
	})
}

// importedRow is the row of an imported app as [appRecord.scanRow] reads it, without the limits of the plan.
type importedRow struct{ in ImportedApp }

// importedColumns are the columns of appColumns up to the plan's limits.
var importedColumns = []string{
	"tenant", "name", "display_name", "status", "revision", "inputs", "generation", "grants", "plan", "labels",
	"weight", "max_concurrent_tasks", "queue_depth", "rates", "auth", "data_key", "created_at", "updated_at",
}

// Scan implements [db.Row].
func (r importedRow) Scan(dest ...any) error {
	for i, name := range importedColumns {
		switch to := dest[i].(type) {
		case *string:
			if *to = r.in.Text(name); name == "tenant" {
				*to = string(r.in.ID)
			}
		case *int64:
			*to = r.in.Number(name)
		case *[]byte:
			*to = r.in.DataKey
		}
	}
	return nil
}
