package invoice

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"stoa/billing/ledger"
	"stoa/billing/price"
	"stoa/tenancy/db"
)

// Options are the optional settings of an [Service]. The zero value works.
type Options struct {
	// Log receives warnings; nil means [slog.Default].
	Log *slog.Logger
	// FinalizeGrace is how long after the end of its month a draft becomes final without a request; 0 means never.
	FinalizeGrace time.Duration
}

// Service makes the invoices of apps and stores the credits that pay them. It is safe for concurrent use, in any
// number of processes on one database.
type Service struct {
	db            *db.DB
	prices        *price.Service
	ledger        *ledger.Service
	log           *slog.Logger
	finalizeGrace time.Duration
}

// New returns the invoices in database d.
func New(d *db.DB, prices *price.Service, ledgers *ledger.Service, o Options) *Service {
	return &Service{db: d, prices: prices, ledger: ledgers, log: cmp.Or(o.Log, slog.Default()), finalizeGrace: o.FinalizeGrace}
}

// The intervals between searches for credits that have expired and for invoices that are due.
const (
	expireCreditsInterval = 10 * time.Minute
	finalizeInterval      = time.Hour
)

// Run makes invoices final that are due and closes credits that have expired, at once and then by the intervals above,
// until ctx ends. Any number of processes may run it: the ledger's lock makes each posting happen once. Errors are
// logged and the next interval tries again.
func (s *Service) Run(ctx context.Context) error {
	finalize, expire := time.NewTicker(finalizeInterval), time.NewTicker(expireCreditsInterval)
	defer finalize.Stop()
	defer expire.Stop()
	s.logError(ctx, "invoices that are due could not be made final", s.FinalizeDueInvoices(ctx))
	s.logError(ctx, "the expiry of credits could not be posted", s.ExpireCredits(ctx))
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-finalize.C:
			s.logError(ctx, "invoices that are due could not be made final", s.FinalizeDueInvoices(ctx))
		case <-expire.C:
			s.logError(ctx, "the expiry of credits could not be posted", s.ExpireCredits(ctx))
		}
	}
}

// logError logs err, unless it is nil or ctx has ended.
func (s *Service) logError(ctx context.Context, message string, err error) {
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, message, "error", err)
	}
}

// queryFunc is a query either within a transaction ([db.Tx.Query]) or outside of any (queryPlatform, queryAsTenant).
type queryFunc func(ctx context.Context, read func(db.Row) error, sql string, args ...any) error

// queryPlatform is a queryFunc outside of any transaction, with access to the rows of all apps.
func (s *Service) queryPlatform(ctx context.Context, read func(db.Row) error, sql string, args ...any) error {
	var b db.Batch
	b.Query(read, sql, args...)
	return s.db.Platform().Do(ctx, &b)
}

// queryAsTenant returns a queryFunc with access to the rows of app only (row-level security).
func (s *Service) queryAsTenant(app db.ID) queryFunc {
	return func(ctx context.Context, read func(db.Row) error, sql string, args ...any) error {
		var b db.Batch
		b.Query(read, sql, args...)
		return s.db.Tenant(app).Do(ctx, &b)
	}
}
