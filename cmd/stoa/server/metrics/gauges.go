package metrics

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"stoa/agentsvc/store/queuestats"
	"stoa/agentsvc/store/receiver"
	"stoa/billing/budget"
	"stoa/billing/export"
	"stoa/tenancy/db"
	"stoa/tenancy/db/backup"
)

// Sources are what the gauges read. All fields are required. The functions run on the goroutine of a
// reader and must be quick; what needs a query is cached here or by the source.
type Sources struct {
	DB *db.DB
	// RunsInflight returns the runs that this process executes.
	RunsInflight func() int
	// StreamsOpen returns the streams of events that clients hold open.
	StreamsOpen func() int64
	// Connections returns how many connections of clients are open, and how many each bound has refused.
	Connections func() (open int64, refused map[string]int64)
	// AppsLoaded returns the runtimes of apps in memory.
	AppsLoaded func() int64
	// AuditFlaws returns the flaws of the audit trail that inspections have found, of all processes.
	AuditFlaws func(ctx context.Context) (int64, error)
	// OldestDocument returns how long the document waits that waits longest for its indexing.
	OldestDocument func(ctx context.Context) (time.Duration, error)
	// UsagePending returns the rows of usage that wait for the database, and those that are lost.
	UsagePending func() (waiting, lost int64)
	// WritesRefused returns the writes that the storage quota has refused.
	WritesRefused func() int64
	// Version and Commit are those of the binary.
	Version, Commit string
	// CertificateExpiry returns the end of validity of the listeners' certificate, zero without TLS.
	CertificateExpiry func() time.Time
	// ExportNames are the exports of usage of this process; Exports returns the progress of those of all processes.
	ExportNames []string
	Exports     func(ctx context.Context) ([]export.Status, error)
	// TightestBudgets returns the budgets with the smallest part left, at most n.
	TightestBudgets func(ctx context.Context, n int) ([]budget.TightBudget, error)
	// MasterKeys returns how many master keys this process has after the first one, and how many of other processes it lacks.
	MasterKeys func() (former, missing int)
}

// RegisterGauges defines the metrics that are computed when they are read. It is called once, when what they read
// exists.
func (r *Recorder) RegisterGauges(s Sources) error {
	d, guard := r.defined, &queryGuard{}
	d.newGauge("stoa_build_info", "", "Always 1: the version of this process, what it was built from, and with which Go.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
		show(1, metric.WithAttributes(attribute.String("version", s.Version), attribute.String("commit", s.Commit), attribute.String("go_version", runtime.Version())))
	}, "version", "commit", "go_version")
	d.newGauge("stoa_tls_certificate_not_after", "s", "Unix time at which the certificate in use expires.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
		if until := s.CertificateExpiry(); !until.IsZero() {
			show(float64(until.Unix()))
		}
	})
	d.newGauge("stoa_runs_inflight", "", "Runs at work in this process.", observeInt(func() int64 { return int64(s.RunsInflight()) }))
	d.newGauge("stoa_streams_open", "", "Streams of events that clients hold open.", observeInt(s.StreamsOpen))
	d.newGauge("stoa_client_connections", "", "Connections of clients, over HTTP and gRPC.", observeInt(func() int64 { open, _ := s.Connections(); return open }))
	d.newObservedCounter("stoa_client_connections_refused", "", "Connections that were closed when they were accepted, by the bound: total or address.",
		func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
			_, refused := s.Connections()
			for bound, n := range refused {
				show(float64(n), withLabel("bound", bound))
			}
		}, "bound")
	oldest := newCachedQuery(guard, s.OldestDocument)
	d.newGauge("stoa_documents_oldest_pending", "s", "Time that the document waits which waits longest for its indexing, of all apps; 0 if none does.", func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		if age, err := oldest(ctx); err == nil {
			show(age.Seconds())
		}
	})
	d.newGauge("stoa_apps_loaded", "", "Apps that are held ready to be called.", observeInt(s.AppsLoaded))
	// One query serves the gauges of the queue.
	queue := newQueueStatsCache(guard, s.DB)
	d.newGauge("stoa_queue_runs", "", "Runs of all processes: pending (those that wait for their session included), running, failed (dead letters), input_required, suspended (waiting, of suspended apps).",
		queue.observeStates, "state")
	d.newGauge("stoa_queue_app_runs", "", "Runs of all processes that are pending or running, by app.", queue.newAppsObserver(r.labels.apps), "state", "app")
	d.newGauge("stoa_queue_oldest", "s", "Age of the run that has waited the longest, in all processes, without those of suspended apps.", queue.observeOldest)
	d.newGauge("stoa_notification_receivers", "", "Addresses for notifications of tasks, of all apps: open, and among them failing, whose last notification could not be delivered.",
		newReceiversObserver(guard, receiver.NewQueue(s.DB)), "state")
	d.newGauge("stoa_audit_flaws", "", "Places where the audit trail is not as it was written, of all that inspections have found: not 0 means that it was changed.", newFlawsObserver(guard, s.AuditFlaws))
	d.newGauge("stoa_usage_pending", "", "Rows of usage that wait in this process until the database takes them.", observeInt(func() int64 {
		waiting, _ := s.UsagePending()
		return waiting
	}))
	d.newObservedCounter("stoa_usage_lost", "", "Rows of usage that are lost: too many waited for the database, or it refused them.", observeInt(func() int64 {
		_, lost := s.UsagePending()
		return lost
	}))
	r.registerBillingGauges(guard, s)
	d.newGauge("stoa_master_keys", "", "Master keys of this process besides the first one: former, which it has until the change of the key ends, and missing, which rows need and it lacks.",
		func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
			former, missing := s.MasterKeys()
			show(float64(former), withLabel("state", "former"))
			show(float64(missing), withLabel("state", "missing"))
		}, "state")
	d.defineDatabaseState(guard, s.DB)
	d.newObservedCounter("stoa_storage_refused", "", "Writes that were refused since their app stores as much as it may.", observeInt(s.WritesRefused))
	if s.DB.Engine() == db.Postgres {
		d.defineConnectionPool(s.DB)
	}
	return d.err
}

// maxBudgetSeries bounds the budgets that are shown.
const maxBudgetSeries = 50

// registerBillingGauges defines the gauges of budgets and exports.
func (r *Recorder) registerBillingGauges(guard *queryGuard, s Sources) {
	flaws := newCachedQuery(guard, func(ctx context.Context) (int64, error) { return budget.CountFlaws(ctx, s.DB) })
	r.defined.newGauge("stoa_budget_flaws", "", "Balances of budgets, of all processes, that are negative or reserve something else than the calls under way do. "+
		"More than 0 for minutes means that they are wrong.", func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		if n, err := flaws(ctx); err == nil {
			show(float64(n))
		}
	})
	budgets := newCachedQuery(guard, func(ctx context.Context) ([]budget.TightBudget, error) {
		return s.TightestBudgets(ctx, maxBudgetSeries)
	})
	r.defined.newGauge("stoa_budget_remaining_ratio", "", "Part of a budget that is left in its window, from 0 to 1, of the 50 used budgets that have the least; "+
		"without a label app those of the platform.", func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		list, _ := budgets(ctx)
		for _, b := range list {
			if b.App == "" {
				show(b.Remaining, withLabel("budget", b.Name))
			} else if r.labels.apps != nil {
				show(b.Remaining, metric.WithAttributes(attribute.String("budget", b.Name), attribute.String("app", b.App)))
			}
		}
	}, "budget", "app")
	exports := newCachedQuery(guard, s.Exports)
	r.defined.newGauge("stoa_export_lag", "s", "Age of the oldest usage of a batch that the receiver of an export has not accepted, or the time for which no process has delivered, 0 if there is neither.",
		func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
			list, _ := exports(ctx)
			for _, x := range list {
				// Of an export that is configured no more, no process has the claim.
				if slices.Contains(s.ExportNames, x.Name) {
					show(x.Lag.Seconds(), withLabel("export", x.Name))
				}
			}
		}, "export")
	for _, name := range s.ExportNames {
		for _, outcome := range []string{"delivered", "failed"} {
			r.work.exports.Add(context.Background(), 0, r.labels.sets.optionFor(labelSet{{"export", name}, {"outcome", outcome}}))
		}
	}
}

// errDatabaseSlow is the error of a query that is not made because another one has just taken too long.
var errDatabaseSlow = errors.New("the database does not answer in time")

// queryGuard bounds what a read of all gauges waits for a database that does not answer: after a query that took too long
// no other is made for queueStatsTTL. It is shared by the queries of all gauges.
type queryGuard struct {
	mu        sync.Mutex
	slowUntil time.Time
}

// run calls query with the bound of a query.
func (g *queryGuard) run(ctx context.Context, query func(ctx context.Context) error) error {
	// Locked during the query, so that concurrent reads find out together that the database does not answer.
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Now().Before(g.slowUntil) {
		return errDatabaseSlow
	}
	bounded, cancel := context.WithTimeout(ctx, queueStatsTimeout)
	defer cancel()
	err := query(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		g.slowUntil = time.Now().Add(queueStatsTTL)
	}
	return err
}

// newCachedQuery returns query with its result kept for queueStatsTTL. A failed one is not repeated before either.
func newCachedQuery[T any](guard *queryGuard, query func(ctx context.Context) (T, error)) func(ctx context.Context) (T, error) {
	var mu sync.Mutex // guards the variables below, also during the query: concurrent scrapes share one
	var at time.Time
	var result T
	var err error
	return func(ctx context.Context) (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) >= queueStatsTTL {
			err = guard.run(ctx, func(ctx context.Context) error {
				var err error
				result, err = query(ctx)
				return err
			})
			at = time.Now()
		}
		return result, err
	}
}

// defineDatabaseState defines what shows whether the database works. Free space is known of SQLite's disk only.
func (i *instruments) defineDatabaseState(guard *queryGuard, d *db.DB) {
	i.newGauge("stoa_db_outage", "", "1 while the database does not answer this process (unreachable), or its disk is full (disk_full), otherwise 0.",
		func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
			for kind, outage := range map[string]error{"unreachable": db.ErrUnreachable, "disk_full": db.ErrDiskFull} {
				n := 0.0
				if errors.Is(d.Outage(), outage) {
					n = 1
				}
				show(n, withLabel("kind", kind))
			}
		}, "kind")
	if d.Engine() == db.SQLite {
		i.newGauge("stoa_db_disk_free", "By", "Free space on the disk of a SQLite file.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
			if free, ok := d.FreeBytes(); ok {
				show(float64(free))
			}
		})
	}
	last := newCachedQuery(guard, func(ctx context.Context) (time.Time, error) { return backup.ReadTime(ctx, d) })
	i.newGauge("stoa_db_last_backup", "s", "Unix time at which the last complete backup was begun, on PostgreSQL as stoa backup record notes it; 0 if none is recorded.", func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		// A database in memory has none.
		if at, err := last(ctx); err == nil {
			show(float64(max(at.Unix(), 0)))
		}
	})
}

// defineConnectionPool defines the statistics of the PostgreSQL connection pool. SQLite has no pool.
func (i *instruments) defineConnectionPool(d *db.DB) {
	i.newGauge("stoa_db_connections_max", "", "Connections to PostgreSQL that there may be.", observeInt(func() int64 { return d.Stats().Max }))
	i.newGauge("stoa_db_connections", "", "Connections to PostgreSQL: idle and used.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
		s := d.Stats()
		for state, n := range map[string]int64{"idle": s.Idle, "used": s.Open - s.Idle} {
			show(float64(n), withLabel("state", state))
		}
	}, "state")
	i.newObservedCounter("stoa_db_connection_waits", "", "How often a caller had to wait for a connection to PostgreSQL.", observeInt(func() int64 { return d.Stats().Waits }))
	i.newObservedCounter("stoa_db_connection_wait", "s", "Time that was waited for connections to PostgreSQL.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
		show(d.Stats().Waited.Seconds())
	})
}

// withLabel returns an observation's attribute set of one label.
func withLabel(key, value string) metric.ObserveOption {
	return metric.WithAttributes(attribute.String(key, value))
}

// Bounds of the queries behind gauges, so that a frequent or slow scrape does not load the database: how long a
// result is reused, and how long one query may take.
const (
	queueStatsTTL     = 10 * time.Second
	queueStatsTimeout = 2 * time.Second
)

// queueStatsCache has the statistics of the queue for all gauges that show a part of them. A scrape then needs one
// query.
type queueStatsCache struct {
	load func(ctx context.Context) (queuestats.Stats, error)
}

// newQueueStatsCache returns the statistics of the queue in d.
func newQueueStatsCache(guard *queryGuard, d *db.DB) *queueStatsCache {
	return &queueStatsCache{newCachedQuery(guard, func(ctx context.Context) (queuestats.Stats, error) { return queuestats.CountOpen(ctx, d) })}
}

// loadStats returns the statistics, at most queueStatsTTL old, and whether they are valid.
func (q *queueStatsCache) loadStats(ctx context.Context) (queuestats.Stats, bool) {
	stats, err := q.load(ctx)
	return stats, err == nil
}

// newReceiversObserver returns the callback that shows how many notification receivers are open and failing.
func newReceiversObserver(guard *queryGuard, q *receiver.Queue) observeFunc {
	counts := newCachedQuery(guard, func(ctx context.Context) (n struct{ open, failing int64 }, err error) {
		n.open, n.failing, err = q.Count(ctx)
		return n, err
	})
	return func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		if n, err := counts(ctx); err == nil {
			show(float64(n.open), withLabel("state", "open"))
			show(float64(n.failing), withLabel("state", "failing"))
		}
	}
}

// observeStates shows the runs by state. Nothing is shown if the statistics are not available: a 0 would look like an
// empty queue.
func (q *queueStatsCache) observeStates(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	if s, ok := q.loadStats(ctx); ok {
		for state, n := range map[string]int64{"pending": s.Pending, "running": s.Running, "failed": s.Failed, "input_required": s.InputRequired, "suspended": s.Suspended} {
			show(float64(n), withLabel("state", state))
		}
	}
}

// observeOldest shows the age in seconds of the pending run that was accepted first.
func (q *queueStatsCache) observeOldest(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	if s, ok := q.loadStats(ctx); ok {
		show(s.OldestPending.Seconds())
	}
}

// newAppsObserver returns the callback that shows the pending and running runs by app. names is nil if apps may not
// be labels; then nothing is shown. Apps that share the label "other" are added up.
func (q *queueStatsCache) newAppsObserver(names *topK) observeFunc {
	return func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		s, ok := q.loadStats(ctx)
		if !ok || names == nil {
			return
		}
		sums := map[[2]string]int64{}
		for _, a := range s.Apps {
			label := names.labelFor(a.App)
			sums[[2]string{"pending", label}] += a.Pending
			sums[[2]string{"running", label}] += a.Running
		}
		// The sums are complete before they are shown: the SDK keeps the last value of a label set.
		for of, n := range sums {
			show(float64(n), metric.WithAttributes(attribute.String("state", of[0]), attribute.String("app", of[1])))
		}
	}
}

// newFlawsObserver returns the callback that shows how many flaws of the audit trail are known. They are stored in the
// database, so that every process shows those that another process found.
func newFlawsObserver(guard *queryGuard, count func(ctx context.Context) (int64, error)) observeFunc {
	return func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		var n int64
		err := guard.run(ctx, func(ctx context.Context) (err error) {
			n, err = count(ctx)
			return err
		})
		if err == nil {
			show(float64(n))
		}
	}
}
