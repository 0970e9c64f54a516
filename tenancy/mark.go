package tenancy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"stoa/tenancy/db"
)

// Revoke refuses, from now on, every token of the app that was issued until now, or with a subject those of the subject.
// New tokens are taken at once: their time of issue is that of [App.IssueAt].
func (s *Service) Revoke(ctx context.Context, actor, app, subject string) error {
	if err := checkText("sub", subject, 500); err != nil {
		return err
	}
	if strings.HasPrefix(subject, keysChanged) {
		return invalid("sub", "names that begin with %q are API keys, which are not revoked but deleted", keysChanged)
	}
	detail := map[string]any{}
	if subject != "" {
		detail["sub"] = subject
	}
	if app == DefaultName {
		return s.revokeOwn(ctx, actor, subject, detail)
	}
	_, err := s.change(ctx, actor, "app.tokens.revoke", app, false, func(e *edit) error {
		if len(e.app.marks) >= maxMarks && subject != "" {
			return refuse(ErrPrecondition, "%d subjects of the app %s are revoked already: revoke all of its tokens instead", len(e.app.marks), app)
		}
		e.revoke, e.detail = &subject, detail
		return nil
	})
	return err
}

func (s *Service) revokeOwn(ctx context.Context, actor, subject string, detail map[string]any) error {
	snap, err := s.ownSnapshot(ctx)
	if err != nil {
		return err
	}
	if len(snap.App.marks) >= maxMarks && subject != "" {
		return refuse(ErrPrecondition, "%d subjects of the default app are revoked already: revoke all of its tokens instead", len(snap.App.marks))
	}
	_, err = s.changeOwn(ctx, actor, "app.tokens.revoke", detail, func(ctx context.Context, tx *db.Tx) error {
		return insertMark(ctx, tx, DefaultID, subject)
	})
	return err
}

// changeOwn carries out f, which must leave a mark for others to see that something has changed, for the default app,
// and returns the app as it is then.
func (s *Service) changeOwn(ctx context.Context, actor, action string, detail map[string]any, f func(ctx context.Context, tx *db.Tx) error) (App, error) {
	if s.own.Load() == nil {
		return App{}, errNoApp
	}
	err := s.db.Platform().Tx(ctx, func(tx *db.Tx) error {
		if err := f(ctx, tx); err != nil {
			return err
		}
		return Audit(ctx, tx, Entry{Actor: actor, Action: action, App: DefaultName, AppID: DefaultID, Detail: detail})
	})
	switch {
	case errors.As(err, new(*refusal)):
		return App{}, err
	case err != nil:
		return App{}, fmt.Errorf("change the default app: %w", err)
	}
	s.changed(DefaultID)
	snap, err := s.ownSnapshot(ctx)
	if err != nil {
		return App{}, err
	}
	return snap.App, nil
}

// insertMark marks now. A mark of the whole app covers the earlier ones of its subjects.
func insertMark(ctx context.Context, tx *db.Tx, id db.ID, subject string) error {
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
