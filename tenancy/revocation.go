package tenancy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/audit"
	"stoa/tenancy/db"
)

// APIKeySubjectPrefix begins the subject of every API key. No token may have such a subject. Itself it is the subject of
// the row in app_mark that is written with each change of the default app's API keys: it makes the generation of the
// default app grow, which has no row of its own.
const APIKeySubjectPrefix = "key:"

// Tokens are the bearer tokens of apps, which are not stored but can be revoked.
type Tokens struct{ store *store }

// Revoke refuses, from now on, every token of the app that was issued until now; with a subject only the tokens of that
// subject. Tokens issued later are accepted at once: [App.TokenIssueTime] dates them after the revocation. API keys are
// not tokens; their subjects are refused as an error with [agentsvc.CodeInvalid]. Beyond maxRevocations subjects it returns
// [agentsvc.CodePrecondition].
func (t Tokens) Revoke(ctx context.Context, actor audit.Actor, app, subject string) error {
	if err := checkText("sub", subject, 500); err != nil {
		return err
	}
	if strings.HasPrefix(subject, APIKeySubjectPrefix) {
		return agentsvc.NewInvalidError("sub", "names that begin with %q are API keys, which are not revoked but deleted", APIKeySubjectPrefix)
	}
	detail := map[string]any{}
	if subject != "" {
		detail["sub"] = subject
	}
	if app == DefaultName {
		return t.revokeDefault(ctx, actor, subject, detail)
	}
	_, err := t.store.changeApp(ctx, actor, "app.tokens.revoke", app, false, func(e *appEdit) error {
		if len(e.app.revocations) >= maxRevocations && subject != "" {
			return agentsvc.NewError(agentsvc.CodePrecondition, "%d subjects of the app %s are revoked already: revoke all of its tokens instead", len(e.app.revocations), app)
		}
		e.revokedSubject, e.detail = &subject, detail
		return nil
	})
	return err
}

// revokeDefault is Revoke for the default app, which has no row whose generation could be checked.
func (t Tokens) revokeDefault(ctx context.Context, actor audit.Actor, subject string, detail map[string]any) error {
	snap, err := t.store.loadDefaultSnapshot(ctx)
	if err != nil {
		return err
	}
	if len(snap.App.revocations) >= maxRevocations && subject != "" {
		return agentsvc.NewError(agentsvc.CodePrecondition, "%d subjects of the default app are revoked already: revoke all of its tokens instead", len(snap.App.revocations))
	}
	_, err = t.store.changeDefaultApp(ctx, actor, "app.tokens.revoke", detail, func(ctx context.Context, tx *db.Tx) error {
		return insertRevocation(ctx, tx, DefaultID, subject)
	})
	return err
}

// changeDefaultApp runs f in a transaction with an audit entry and returns the default app as it is afterwards. f must
// write a row of app_mark or app_role: from these rows the generation of the default app is computed, by which other
// processes notice the change ([queryDefaultGeneration]).
func (s *store) changeDefaultApp(ctx context.Context, actor audit.Actor, action string, detail map[string]any, f func(ctx context.Context, tx *db.Tx) error) (App, error) {
	if s.defaultApp.Load() == nil {
		return App{}, errNoApp
	}
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error {
		if err := f(ctx, tx); err != nil {
			return err
		}
		return audit.Insert(ctx, tx, audit.Entry{Actor: actor, Action: action, App: DefaultName, AppID: DefaultID, Detail: detail})
	})
	switch {
	case errors.As(err, new(*agentsvc.Error)):
		return App{}, err
	case err != nil:
		return App{}, fmt.Errorf("change the default app: %w", err)
	}
	s.publishChange(DefaultID)
	snap, err := s.loadDefaultSnapshot(ctx)
	if err != nil {
		return App{}, err
	}
	return snap.App, nil
}

// insertRevocation revokes the tokens of subject up to now by the database's clock; "" stands for the whole app. The
// condition on not_before keeps a revocation from moving backwards. A revocation of the whole app makes the rows of its
// subjects redundant, so they are deleted.
func insertRevocation(ctx context.Context, tx *db.Tx, id db.ID, subject string) error {
	_, err := tx.Exec(ctx, `INSERT INTO app_mark (tenant, subject, not_before) VALUES ($1, $2, stoa_now())
		ON CONFLICT (tenant, subject) DO UPDATE SET not_before = excluded.not_before WHERE app_mark.not_before < excluded.not_before`,
		string(id), subject)
	if err != nil || subject != "" {
		return err
	}
	_, err = tx.Exec(ctx, `DELETE FROM app_mark WHERE tenant = $1 AND subject <> '' AND not_before <=
		(SELECT not_before FROM app_mark WHERE tenant = $1 AND subject = '')`, string(id))
	return err
}
