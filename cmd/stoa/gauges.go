package main

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"stoa/agentsvc/store"
	"stoa/agentsvc/surface"
	"stoa/tenancy/db"
)

// openMeters starts counting, if anybody reads what is counted. App labels tell who the tenants are, so they need a
// token or a machine of one's own.
func (h *house) openMeters(ctx context.Context) error {
	pushed, err := exportMetrics(ctx)
	if err != nil {
		return err
	}
	cfg := h.own.cfg.Load()
	if pushed == nil && h.settings.metricsAddr == "" && (cfg == nil || !cfg.Observability.Metrics.Enabled) {
		return nil
	}
	withApps := h.secrets.metrics != "" || h.settings.measuredAlone()
	if pushed == nil {
		h.meters, err = newMeters(withApps)
		return err
	}
	if h.meters, err = newMeters(withApps, pushed); err == nil {
		h.closing(shutting(h.meters.provider.Shutdown))
	}
	return err
}

// gauges shows the state of the house and its front whenever somebody asks for it.
func (h *house) gauges(front *surface.Server) error {
	m := h.meters
	if m == nil {
		return nil
	}
	m.gauge("stoa_runs_inflight", "", "Runs at work in this process.", plain(func() int64 { return int64(h.inflight()) }))
	m.gauge("stoa_streams_open", "", "Streams of events that clients hold open.", plain(front.Streams))
	m.gauge("stoa_client_connections", "", "Connections of clients, over HTTP and gRPC.", plain(func() int64 { open, _ := h.clients.count(); return open }))
	m.total("stoa_client_connections_refused", "", "Connections that were closed when they were accepted, by the bound: total or address.",
		func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
			_, refused := h.clients.count()
			for bound, n := range refused {
				show(float64(n), labelled("bound", bound))
			}
		}, "bound")
	m.gauge("stoa_apps_loaded", "", "Apps that are held ready to be called.", plain(h.live.Len))
	queue := &queueLook{runs: store.NewRuns(h.db)}
	m.gauge("stoa_queue_runs", "", "Runs of all processes: pending (those that wait for their session included), running, failed (dead letters), input_required.",
		queue.states, "state")
	m.gauge("stoa_queue_app_runs", "", "Runs of all processes that are pending or running, by app.", queue.apps(m.apps), "state", "app")
	m.gauge("stoa_queue_oldest", "s", "Age of the run that has waited the longest, in all processes.", queue.oldest)
	m.gauge("stoa_notification_receivers", "", "Addresses that are told of tasks, of all apps: open, and among them failing, whose last notification could not be delivered.",
		toldOf(store.NewReceivers(h.db)), "state")
	m.gauge("stoa_audit_flaws", "", "Places where the audit trail is not as it was written, of all that inspections have found: not 0 means that somebody has changed it.", h.flaws)
	m.gauge("stoa_usage_pending", "", "Rows of usage that wait in this process until the database takes them.", plain(func() int64 {
		waiting, _ := h.shared.Billing.PendingUsage()
		return waiting
	}))
	m.total("stoa_usage_lost", "", "Rows of usage that are lost: too many waited for the database, or it refused them.", plain(func() int64 {
		_, lost := h.shared.Billing.PendingUsage()
		return lost
	}))
	m.total("stoa_storage_refused", "", "Writes that were refused since their app stores as much as it may.", plain(h.quota.Refused))
	if h.db.Engine() == db.Postgres {
		m.connections(h.db)
	}
	return m.wrong
}

// connections shows the pool of connections to PostgreSQL.
func (m *meters) connections(d *db.DB) {
	m.gauge("stoa_db_connections_max", "", "Connections to PostgreSQL that there may be.", plain(func() int64 { return d.Stats().Max }))
	m.gauge("stoa_db_connections", "", "Connections to PostgreSQL: idle and used.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
		s := d.Stats()
		for state, n := range map[string]int64{"idle": s.Idle, "used": s.Open - s.Idle} {
			show(float64(n), labelled("state", state))
		}
	}, "state")
	m.total("stoa_db_connection_waits", "", "How often somebody had to wait for a connection to PostgreSQL.", plain(func() int64 { return d.Stats().Waits }))
	m.total("stoa_db_connection_wait", "s", "Time that was waited for connections to PostgreSQL.", func(_ context.Context, show func(float64, ...metric.ObserveOption)) {
		show(d.Stats().Waited.Seconds())
	})
}

func labelled(key, value string) metric.ObserveOption {
	return metric.WithAttributes(attribute.String(key, value))
}

// Of looks at the queue: how long one holds for whoever asks next, and how long it may take.
const (
	queueFor  = 10 * time.Second
	queueTime = 2 * time.Second
)

// queueLook is the queue as it was last looked at. Where it cannot be seen it shows nothing.
type queueLook struct {
	runs *store.Runs

	mu   sync.Mutex
	at   time.Time
	last store.Stats
	ok   bool
}

func (q *queueLook) look(ctx context.Context) (store.Stats, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.at) < queueFor {
		return q.last, q.ok
	}
	ctx, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	last, err := q.runs.Open(ctx)
	q.last, q.ok, q.at = last, err == nil, time.Now()
	return q.last, q.ok
}

// toldOf shows how many are told of tasks, as they were last counted.
func toldOf(q *store.Receivers) reading {
	var mu sync.Mutex
	var at time.Time
	var open, failing int64
	var err error
	return func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(at) >= queueFor {
			ctx, cancel := context.WithTimeout(ctx, queueTime)
			defer cancel()
			open, failing, err = q.Count(ctx)
			at = time.Now()
		}
		if err == nil {
			show(float64(open), labelled("state", "open"))
			show(float64(failing), labelled("state", "failing"))
		}
	}
}

func (q *queueLook) states(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	if s, ok := q.look(ctx); ok {
		for state, n := range map[string]int64{"pending": s.Pending, "running": s.Running, "failed": s.Failed, "input_required": s.InputRequired} {
			show(float64(n), labelled("state", state))
		}
	}
}

func (q *queueLook) oldest(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
	if s, ok := q.look(ctx); ok {
		show(s.OldestPending.Seconds())
	}
}

// apps shows the apps with the most runs under the labels that they have.
func (q *queueLook) apps(names *busiest) reading {
	return func(ctx context.Context, show func(float64, ...metric.ObserveOption)) {
		s, ok := q.look(ctx)
		if !ok || names == nil {
			return
		}
		sums := map[[2]string]int64{}
		for _, a := range s.Apps {
			label := names.label(a.App)
			sums[[2]string{"pending", label}] += a.Pending
			sums[[2]string{"running", label}] += a.Running
		}
		for of, n := range sums {
			show(float64(n), metric.WithAttributes(attribute.String("state", of[0]), attribute.String("app", of[1])))
		}
	}
}

// counted counts a run that ended without an end of its own on the log.
func (h *house) counted(ctx context.Context, app string, err error) error {
	if out := outcome(err); out != "" && h.meters != nil {
		h.meters.left(ctx, app, out)
	}
	return err
}
