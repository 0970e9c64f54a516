package export

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"stoa/billing/budget"
	"stoa/tenancy/db"
)

// Service makes exporters, and reports the progress of exports. It is safe for concurrent use, in any number of
// processes on one database.
type Service struct {
	db      *db.DB
	budgets *budget.Service
	log     *slog.Logger
}

// New returns the exports of database d.
func New(d *db.DB, budgets *budget.Service, log *slog.Logger) *Service {
	return &Service{d, budgets, log}
}

// Status is the progress of an export.
type Status struct {
	Name string
	// Batch is the number of the last batch, Pending whether it is not acknowledged yet.
	Batch   int64
	Pending bool
	// Rows and Refused count the rows that were accepted and refused.
	Rows    int64
	Refused int64
	// Error is the text of the last failure, "" if the last delivery succeeded.
	Error   string
	Updated time.Time
	// Lag is the age of the oldest row of a batch that is not acknowledged, or if it is longer the time since the claim ended of
	// a process that did not renew it: usage that was recorded since is in no batch yet. It is 0 if there is neither.
	Lag time.Duration
}

// ListExports returns all exports by name, including those that no process is configured for any more.
func (s *Service) ListExports(ctx context.Context) ([]Status, error) {
	list := []Status{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var x Status
		var updated, lag, unclaimed int64
		err := r.Scan(&x.Name, &x.Batch, &x.Pending, &x.Rows, &x.Refused, &x.Error, &updated, &lag, &unclaimed)
		x.Updated, x.Lag = time.UnixMicro(updated).UTC(), time.Duration(max(lag, unclaimed, 0))*time.Microsecond
		list = append(list, x)
		return err
	}, `SELECT name, batch, pending, rows, refused, error, updated_at, CASE WHEN pending THEN COALESCE(stoa_now() -
			(SELECT MIN(u.recorded_at) FROM usage_exported u WHERE u.export = e.name AND u.batch = e.batch), 0) ELSE 0 END,
			CASE WHEN until > 0 THEN stoa_now() - until ELSE 0 END
		FROM export e ORDER BY name`)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the exports: %w", err)
	}
	return list, nil
}
