package invoice

import (
	"context"
	"errors"
	"fmt"

	"stoa/billing/ledger"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// ExpireCredits closes every credit that has expired, unless usage from before its end is not invoiced yet: that usage
// may need it. Such a credit expires when the usage is invoiced (finalizeFirstDraft).
func (s *Service) ExpireCredits(ctx context.Context) error {
	var apps []tenancy.App
	// The subquery finds apps that have an expired credit whose postings do not sum to zero, so that something is left.
	err := s.queryPlatform(ctx, func(r db.Row) error {
		var app tenancy.App
		err := r.Scan((*string)(&app.ID), &app.Name)
		apps = append(apps, app)
		return err
	}, `SELECT l.App, l.name FROM ledger l WHERE l.App IN (
			SELECT c.app FROM credit c JOIN ledger_entry e ON e.app = c.app AND e.credit = c.id
				JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id AND p.account = 'credits'
			WHERE c.expires_at > 0 AND c.expires_at <= stoa_now() GROUP BY c.app, c.id HAVING SUM(p.amount) <> 0) ORDER BY l.App`)
	if err != nil {
		return fmt.Errorf("look for credits that are over: %w", err)
	}
	var errs []error
	for _, app := range apps {
		if err := s.expireAppCredits(ctx, app); err != nil {
			errs = append(errs, fmt.Errorf("expire credits of app %s: %w", app.Name, err))
		}
	}
	return errors.Join(errs...)
}

// expireAppCredits closes the expired credits of an app. The credits are sorted by expiry, so the first one that is
// still needed ends the search.
func (s *Service) expireAppCredits(ctx context.Context, app tenancy.App) error {
	return s.ledger.Update(ctx, app, func(l *ledger.Tx) error {
		all, err := readCredits(ctx, l.Query, app.ID)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.Remaining == 0 || c.Expires.IsZero() || c.Expires.After(l.Now) {
				continue
			}
			if needed, err := isCreditNeeded(ctx, l, c); err != nil || needed {
				return err
			}
			if err := closeCredit(ctx, l, ledger.EntryExpiry, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// isCreditNeeded reports whether there is usage from before the end of c that is not invoiced. The conditions are those
// of Billed.
func isCreditNeeded(ctx context.Context, l *ledger.Tx, c Credit) (needed bool, err error) {
	end := c.Expires.UnixMicro()
	err = l.Query(ctx, func(r db.Row) error { needed = true; return r.Scan(new(int)) }, `SELECT 1 FROM usage u
		WHERE (u.tenant || '') = $1 AND u.at < $2 AND (u.at >= $3 OR u.recorded_at >= $4)
			AND NOT EXISTS (SELECT 1 FROM usage_billed b WHERE b.tenant = u.tenant AND b.task = u.task AND b.key = u.key) LIMIT 1`,
		string(l.App), end, l.Billed.Until, l.Billed.Recorded)
	return needed, err
}
