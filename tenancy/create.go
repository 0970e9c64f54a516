package tenancy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// Draft is the description of an app to create.
type Draft struct {
	Name        string
	DisplayName string
	// Config is the configuration, a JSON object or YAML, at most MaxConfigSize bytes.
	Config []byte
	// Secrets are the values that ${NAME} in the configuration refers to, by name.
	Secrets map[string]string
	Grants  grant.List
	Plan    string
	// Limits are applied to the zero Limits; a field that is nil stays at the plan's value or the default.
	Limits LimitsChange
	Auth   IssuerConfig
	Labels map[string]string
}

// CreateApp creates an app with all of its rows in one transaction; with dryRun it only checks the draft and returns
// the app that would be created. The name may have belonged to a deleted app: the new app has another id and refuses
// tokens of the former one. It returns [agentsvc.CodeExists] if the name, or the pair of issuer and audience, is in
// use, and an [agentsvc.CodeInvalid] for a bad field.
func (s *Service) CreateApp(ctx context.Context, actor audit.Actor, d Draft, dryRun bool) (App, error) {
	w, err := s.buildDraft(ctx, d)
	if err != nil {
		return App{}, err
	}
	if dryRun {
		return s.store.maskedApp(w.app, w.config), nil
	}
	e := &appEdit{appState: w, secretsToStore: d.Secrets, detail: map[string]any{"secrets": sortedNames(d.Secrets)}}
	s.store.describeEdit(e)
	var after appRecord
	err = s.store.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if err := s.store.checkIssuerUnique(ctx, tx, &w.app); err != nil {
			return err
		}
		if err := insertApp(ctx, tx, w, s.store.keys.CurrentKeyID()); err != nil {
			return err
		}
		if err := insertRevision(ctx, tx, actor, w); err != nil {
			return err
		}
		if err := storeSecrets(ctx, tx, e); err != nil {
			return err
		}
		if err := revokeFormerTokens(ctx, tx, &w.app); err != nil {
			return err
		}
		if err := audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: "app.create", App: w.app.Name, AppID: w.app.ID, Detail: e.detail}); err != nil {
			return err
		}
		return readApp(ctx, tx, w.app.ID, &after)
	})
	switch {
	case errors.Is(err, agentsvc.CodeExists):
		return App{}, err
	// A concurrent call took the name or the issuer after the checks; find out which, for the error.
	case db.IsDuplicate(err):
		if again := s.checkNameFree(ctx, d.Name); again != nil {
			return App{}, again
		}
		return App{}, errIssuerTaken
	case err != nil:
		return App{}, fmt.Errorf("create app %s: %w", d.Name, err)
	}
	s.store.publishChange(after.app.ID)
	s.store.bus.Publish(topicName, d.Name)
	after.app.Config = w.app.Config
	return s.store.maskedApp(after.app, w.config), nil
}

// buildDraft checks d completely and returns the state of the new app with a fresh id and data key. It writes nothing.
func (s *Service) buildDraft(ctx context.Context, d Draft) (*appState, error) {
	checked, err := d.check(ctx, s)
	if err != nil {
		return nil, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	w := &appState{config: d.Config, secrets: d.Secrets}
	w.app = App{
		ID: db.ID(id.String()), Name: d.Name, DisplayName: d.DisplayName, Status: Active, Version: Version{Revision: 1, Inputs: 1, Generation: 1},
		Grants: checked.Grants, Plan: d.Plan, Limits: checked.Limits, Auth: d.Auth, Labels: map[string]string{},
		Config: checked.Config,
	}
	maps.Copy(w.app.Labels, d.Labels)
	w.dataKey = s.store.keys.NewDataKey(id.String())
	w.fieldCipher, err = s.store.keys.NewFieldCipher(id.String(), w.dataKey)
	return w, err
}

// check checks d completely and returns an app with what was derived from it: grants, limits and the warnings about
// the configuration.
func (d *Draft) check(ctx context.Context, s *Service) (*App, error) {
	grants, err := d.checkFields(s.store.options.Guard)
	if err != nil {
		return nil, err
	}
	limits, err := d.Limits.applyTo(Limits{})
	if err != nil {
		return nil, err
	}
	if err := s.checkIssuerHost(ctx, &App{Auth: d.Auth, Grants: grants}, &App{}); err != nil {
		return nil, err
	}
	if err := s.checkGrantOverlap(ctx, "", grants); err != nil {
		return nil, err
	}
	if err := s.checkPlanExists(ctx, &d.Plan); err != nil {
		return nil, err
	}
	if err := s.checkNameFree(ctx, d.Name); err != nil {
		return nil, err
	}
	checked := &App{Grants: grants, Plan: d.Plan, Limits: limits}
	if err := s.store.checkConfigLoads(ctx, d.Config, checked, d.Secrets); err != nil {
		return nil, err
	}
	return checked, s.checkRateAgents(limits.Rates, nil, d.Config)
}

// checkFields checks those fields of d that need no other data, and returns the normalized grants.
func (d *Draft) checkFields(guard *grant.Guard) (grants grant.List, err error) {
	if err := checkAppName(d.Name); err != nil {
		return nil, err
	}
	if err := checkConfig(d.Config); err != nil {
		return nil, err
	}
	if err := checkText("display_name", d.DisplayName, maxDisplayName); err != nil {
		return nil, err
	}
	if err := checkSecrets(d.Secrets); err != nil {
		return nil, err
	}
	if len(d.Secrets) > MaxSecrets {
		return nil, agentsvc.NewInvalidError("secrets", "there are %d, %d are allowed", len(d.Secrets), MaxSecrets)
	}
	if err := checkLabels(d.Labels); err != nil {
		return nil, err
	}
	if err := checkPlan(d.Plan); err != nil {
		return nil, err
	}
	if grants, err = normalizeGrants(d.Grants, guard); err != nil {
		return nil, err
	}
	if d.Auth != (IssuerConfig{}) {
		err = d.Auth.checkFields(grants)
	}
	return grants, err
}

// checkNameFree returns [agentsvc.CodeExists] if an app has the name. It makes the common error precise; the unique
// constraint decides for concurrent calls.
func (s *Service) checkNameFree(ctx context.Context, name string) error {
	if name == DefaultName {
		return agentsvc.NewError(agentsvc.CodeExists, "the name default belongs to the app of the config file")
	}
	id, err := s.store.findAppID(ctx, name)
	switch {
	case err != nil:
		return err
	case id != "":
		return newNameTakenError(name)
	}
	return nil
}

func newNameTakenError(name string) error {
	return agentsvc.NewError(agentsvc.CodeExists, "there is already an app named %s", name)
}

// insertApp inserts the app's row. It violates the unique constraint app_name or app_auth if another app has the name
// or the issuer ([db.IsDuplicate]).
func insertApp(ctx context.Context, tx *db.Tx, w *appState, masterKey string) error {
	grants, labels, rates, err := w.app.encodeColumns()
	if err != nil {
		return err
	}
	a := &w.app
	auth, err := a.Auth.encodeColumn()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO app (tenant, name, display_name, status, revision, inputs, generation, grants, plan, labels,
			data_key, master_key, weight, max_concurrent_tasks, queue_depth, rates, auth, auth_key, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, stoa_now(), stoa_now())`,
		string(a.ID), a.Name, a.DisplayName, string(a.Status), a.Revision, a.Inputs, a.Generation, grants, a.Plan, labels, w.dataKey, masterKey,
		a.Limits.Weight, a.Limits.MaxConcurrentTasks, a.Limits.QueueDepth, rates, auth, a.Auth.uniqueKey(a.Name))
	if err == nil && a.Plan != "" {
		err = insertPlanChange(ctx, tx, a)
	}
	return err
}

// revokeFormerTokens revokes all tokens issued before the current second, if an app of the same name existed before.
// Tokens of the server's OpenID provider name an app by its name only, so those of the former app would be accepted
// otherwise. The audit trail is the record of former apps, because it outlives them.
func revokeFormerTokens(ctx context.Context, tx *db.Tx, a *App) error {
	_, err := tx.Exec(ctx, `INSERT INTO app_mark (tenant, subject, not_before)
		SELECT CAST($1 AS TEXT), '', stoa_now() WHERE EXISTS (SELECT 1 FROM audit WHERE app = $2 AND app_id <> CAST($1 AS TEXT))
		ON CONFLICT (tenant, subject) DO UPDATE SET not_before = excluded.not_before WHERE app_mark.not_before < excluded.not_before`,
		string(a.ID), a.Name)
	return err
}

// sortedNames returns the names of secrets, sorted and never nil, for the audit trail.
func sortedNames(secrets map[string]string) []string {
	sorted := slices.AppendSeq([]string{}, maps.Keys(secrets))
	slices.Sort(sorted)
	return sorted
}
