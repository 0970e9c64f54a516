package tenancy

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// SecretInfo describes a secret without its value, which is never returned.
type SecretInfo struct {
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Secrets are the values that ${NAME} in configurations refers to.
type Secrets struct{ store *store }

// Store adds or replaces a secret. It is refused if the app's configuration loads with the present secrets but
// would not load with this one.
func (s Secrets) Store(ctx context.Context, actor audit.Actor, app, name, value string, p Precondition) error {
	_, err := s.store.changeApp(ctx, actor, "app.secret.put", app, false, func(e *appEdit) error {
		if err := e.app.checkPrecondition(p); err != nil {
			return err
		}
		if err := e.addSecrets(map[string]string{name: value}); err != nil {
			return err
		}
		err := s.store.checkConfigLoads(ctx, e.config, &e.app, e.secrets)
		if err != nil && s.store.checkConfigLoads(ctx, e.config, &e.app, e.previous.secrets) != nil {
			return nil // it does not load either way: this secret may be the first of several that are missing
		}
		return err
	})
	return err
}

// Delete deletes a secret. It is refused if the app's configuration does not load without it. An unknown name is
// [agentsvc.CodeNotFound].
func (s Secrets) Delete(ctx context.Context, actor audit.Actor, app, name string, p Precondition) error {
	_, err := s.store.changeApp(ctx, actor, "app.secret.delete", app, false, func(e *appEdit) error {
		if err := e.app.checkPrecondition(p); err != nil {
			return err
		}
		if _, ok := e.secrets[name]; !ok {
			return agentsvc.NewError(agentsvc.CodeNotFound, "no such secret")
		}
		delete(e.secrets, name)
		e.secretsToDelete, e.rebuild, e.detail["secrets"] = []string{name}, true, []string{name}
		return s.store.checkConfigLoads(ctx, e.config, &e.app, e.secrets)
	})
	return err
}

// List returns an app's secrets without their values, ordered by name.
func (s Secrets) List(ctx context.Context, app string) ([]SecretInfo, error) {
	id, err := s.store.requireAppID(ctx, app)
	if err != nil {
		return nil, err
	}
	return s.ListByID(ctx, id)
}

// ListByID is List for the app with that id.
func (s Secrets) ListByID(ctx context.Context, id db.ID) ([]SecretInfo, error) {
	secrets := []SecretInfo{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var i SecretInfo
		var created, updated int64
		err := row.Scan(&i.Name, &created, &updated)
		i.CreatedAt, i.UpdatedAt = timeFromMicros(created), timeFromMicros(updated)
		secrets = append(secrets, i)
		return err
	}, `SELECT name, created_at, updated_at FROM app_secret WHERE tenant = $1 ORDER BY name`, string(id))
	if err := s.store.db.Tenant(id).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("list secrets of app %s: %w", id, err)
	}
	return secrets, nil
}
