package usage

import (
	"context"
	"log/slog"

	"stoa/billing/price"
	"stoa/tenancy/db"
)

// Service writes and sums the usage of apps. It is safe for concurrent use, in any number of processes on one
// database.
type Service struct {
	// The fields above pending are set before the service is used, then read-only.
	db     *db.DB
	prices *price.Service
	log    *slog.Logger
	// onQueuedWritten is set by OnQueuedWritten.
	onQueuedWritten func(ctx context.Context, app db.ID, rows []Row) error
	// pending holds usage rows that the database did not accept yet.
	pending pendingUsage
}

// New returns the usage in database d, which is priced by prices.
func New(d *db.DB, prices *price.Service, log *slog.Logger) *Service {
	return &Service{db: d, prices: prices, log: log}
}

// OnQueuedWritten sets a function that is called with rows of an app that had to wait for the database, after they were
// written. It must be called before the service is used.
func (s *Service) OnQueuedWritten(f func(ctx context.Context, app db.ID, rows []Row) error) {
	s.onQueuedWritten = f
}

// reportWritten calls onQueuedWritten, if there is one and there are rows.
func (s *Service) reportWritten(ctx context.Context, app db.ID, rows []Row) error {
	if s.onQueuedWritten == nil || len(rows) == 0 {
		return nil
	}
	return s.onQueuedWritten(ctx, app, rows)
}
