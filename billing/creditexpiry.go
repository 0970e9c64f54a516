package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"stoa/tenancy"
	"stoa/tenancy/db"
)

// expireInterval is the interval between searches for expired credits.
const expireInterval = 10 * time.Minute

// RunBookkeeping calls ExpireCredits every expireInterval and FinalizeDueInvoices every finalizeInterval, until ctx
// ends. Any number of processes may run it: the ledger's lock makes each posting happen once. Errors are logged and the
// next interval tries again.
func (s *Service) RunBookkeeping(ctx context.Context) error {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	var looked time.Time
	for {
		if time.Since(looked) >= finalizeInterval {
			looked = time.Now()
			if err := s.FinalizeDueInvoices(ctx); err != nil && ctx.Err() == nil {
				s.log.WarnContext(ctx, "invoices that are due could not be made final", "error", err)
			}
		}
		if err := s.ExpireCredits(ctx); err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "the expiry of credits could not be posted", "error", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

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
	}, `SELECT l.app, l.name FROM ledger l WHERE l.app IN (
			SELECT c.app FROM credit c JOIN ledger_entry e ON e.app = c.app AND e.credit = c.id
				JOIN ledger_posting p ON p.app = e.app AND p.entry = e.id AND p.account = 'credits'
			WHERE c.expires_at > 0 AND c.expires_at <= stoa_now() GROUP BY c.app, c.id HAVING SUM(p.amount) <> 0) ORDER BY l.app`)
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
	return s.updateLedger(ctx, app, func(l *ledger) error {
		all, err := readCredits(ctx, l.tx.Query, app.ID)
		if err != nil {
			return err
		}
		for _, c := range all {
			if c.Remaining == 0 || c.Expires.IsZero() || c.Expires.After(l.now) {
				continue
			}
			if needed, err := l.isCreditNeeded(ctx, c); err != nil || needed {
				return err
			}
			if err := l.closeCredit(ctx, EntryExpiry, c); err != nil {
				return err
			}
		}
		return nil
	})
}

// isCreditNeeded reports whether there is usage from before the end of c that is not invoiced. The conditions are those
// of billedState.
func (l *ledger) isCreditNeeded(ctx context.Context, c Credit) (needed bool, err error) {
	end := c.Expires.UnixMicro()
	err = l.tx.Query(ctx, func(r db.Row) error { needed = true; return r.Scan(new(int)) }, `SELECT 1 FROM usage u
		WHERE (u.tenant || '') = $1 AND u.at < $2 AND (u.at >= $3 OR u.recorded_at >= $4)
			AND NOT EXISTS (SELECT 1 FROM usage_billed b WHERE b.tenant = u.tenant AND b.task = u.task AND b.key = u.key) LIMIT 1`,
		string(l.app), end, l.state.until, l.state.recorded)
	return needed, err
}
