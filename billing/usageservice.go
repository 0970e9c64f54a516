package billing

import (
	"context"
	"log/slog"

	"stoa/tenancy/db"
)

// UsageService writes and sums the usage of apps. It is safe for concurrent use, in any number of processes on one
// database.
type UsageService struct {
	// The fields above pending are set before the service is used, then read-only.
	db     *db.DB
	prices *PriceService
	log    *slog.Logger
	// onQueuedWritten is set by OnQueuedWritten.
	onQueuedWritten func(ctx context.Context, app db.ID, rows []UsageRow) error
	// pending holds usage rows that the database did not accept yet.
	pending pendingUsage
}

// NewUsageService returns the usage in database d, which is priced by prices.
func NewUsageService(d *db.DB, prices *PriceService, log *slog.Logger) *UsageService {
	return &UsageService{db: d, prices: prices, log: log}
}

// OnQueuedWritten sets a function that is called with rows of an app that had to wait for the database, after they were
// written. It must be called before the service is used.
func (s *UsageService) OnQueuedWritten(f func(ctx context.Context, app db.ID, rows []UsageRow) error) {
	s.onQueuedWritten = f
}

// reportWritten calls onQueuedWritten, if there is one and there are rows.
func (s *UsageService) reportWritten(ctx context.Context, app db.ID, rows []UsageRow) error {
	if s.onQueuedWritten == nil || len(rows) == 0 {
		return nil
	}
	return s.onQueuedWritten(ctx, app, rows)
}
