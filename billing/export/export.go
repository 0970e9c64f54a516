// Package export delivers the usage rows of all apps, and the threshold events of budgets, to the operator's receivers.
// A receiver is a [Sink]; the packages below this one have them.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/billing/budget"
	"stoa/billing/usage"
	"stoa/tenancy/db"
)

// Sink is a receiver of usage rows: a folder ([file.Sink]), a webhook ([webhook.Sink]) or Stripe ([stripe.Sink]).
type Sink interface {
	// Send delivers a batch. After an error the same batch is sent again, with the same number and rows, also by
	// another process; Send must then not count anything twice. refused is the number of rows that the receiver will
	// never accept; they are not sent again.
	Send(ctx context.Context, b Batch) (refused int, err error)
}

// Batch is a numbered batch of usage rows.
type Batch struct {
	Export string
	// Number counts the batches of the export: 1, 2, 3 and so on.
	Number int64
	Rows   []Row
}

// Row is a usage row with its app.
type Row struct {
	App   string
	AppID db.ID
	// Labels are those of the app.
	Labels map[string]string
	usage.Row
}

// Exporter delivers each usage row to each sink at least once, in numbered batches, oldest first within an app. Any
// number of processes may run one. For each sink, one process at a time has the claim (table export, columns holder and
// until).
//
// A batch is stored before it is sent (composeBatch) and acknowledged after (acknowledgeBatch). A process that takes
// over sends the stored batch again unchanged, so that a sink can recognise it.
type Exporter struct {
	// The fields are set by New, then read-only. sinks are by the name of the export.
	db         *db.DB
	budgets    *budget.Service
	sinks      map[string]Sink
	onDelivery func(export string, err error)
	processID  string
	log        *slog.Logger
}

// NewExporter returns an exporter of all usage, and of the threshold notices of budgets, for sinks. The names of sinks
// identify the exports in the database: a sink with a new name begins at that moment. onDelivery is called after each
// delivered batch, and after each failure, which ends an attempt; nil = not called.
func (s *Service) NewExporter(sinks map[string]Sink, onDelivery func(export string, err error)) *Exporter {
	if onDelivery == nil {
		onDelivery = func(string, error) {}
	}
	return &Exporter{db: s.db, budgets: s.budgets, sinks: sinks, onDelivery: onDelivery, processID: agentsvc.NewID(), log: s.log}
}

// Names returns the names of the exports.
func (e *Exporter) Names() []string { return slices.Sorted(maps.Keys(e.sinks)) }

const (
	// deliverInterval is the pause after all usage was delivered.
	deliverInterval = 15 * time.Second
	// deliverTimeout bounds the delivery of one batch. A claim lasts twice as long, so it outlasts the delivery of one
	// batch.
	deliverTimeout = time.Minute
	claimTTL       = 2 * deliverTimeout
	// idleClaimTTL is how long the claim lasts of a process that waits for usage to deliver. It renews the claim after
	// deliverInterval; if it was killed, another process continues after this time.
	idleClaimTTL = 2 * deliverInterval
	// maxBackoff bounds the pause after failures, which doubles each time.
	maxBackoff = 10 * time.Minute
	// batchSize is the number of rows in a batch, appsPerRead the number of apps whose rows one round trip looks for.
	batchSize   = 500
	appsPerRead = 20
	// maxErrorBytes bounds the stored text of an error.
	maxErrorBytes = 1000
)

// Run delivers until ctx ends. After a failure a sink is tried again after a pause that doubles up to maxBackoff. Each
// sink has its own goroutine, so that none waits for another.
func (e *Exporter) Run(ctx context.Context) error {
	var sinks sync.WaitGroup
	for name := range e.sinks {
		sinks.Go(func() { e.runSink(ctx, name) })
	}
	sinks.Wait()
	<-ctx.Done()
	return ctx.Err()
}

// runSink delivers to one sink until ctx ends, and then releases its claim so that another process can continue at
// once.
func (e *Exporter) runSink(ctx context.Context, name string) {
	for wait := deliverInterval; ; {
		err := e.deliverBatches(ctx, name)
		switch {
		case ctx.Err() != nil:
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			// On failure the claim expires after claimTTL.
			_ = e.limitClaim(left, name, 0)
			return
		case err != nil:
			e.log.WarnContext(ctx, "usage could not be exported and will be sent again", "export", name, "error", err, "in", wait)
			wait = min(2*wait, maxBackoff)
		default:
			wait = deliverInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// DeliverAll delivers all usage to every sink whose export no other process has claimed, and returns.
func (e *Exporter) DeliverAll(ctx context.Context) error {
	var errs []error
	for name := range e.sinks {
		errs = append(errs, e.deliverBatches(ctx, name))
	}
	return errors.Join(errs...)
}

// deliverBatches sends batches to a sink until there is no more usage. It renews the claim before each batch. It
// returns nil if another process has the claim.
func (e *Exporter) deliverBatches(ctx context.Context, name string) (err error) {
	defer func() {
		if err != nil && ctx.Err() == nil {
			e.onDelivery(name, err)
		}
	}()
	apps, last := map[db.ID]*appProgress{}, db.ID("")
	for ctx.Err() == nil {
		x, err := e.claimExport(ctx, name)
		if err != nil || x == nil {
			return err
		}
		if err := e.notifyThresholds(ctx, x); err != nil {
			return errors.Join(err, e.recordError(context.WithoutCancel(ctx), name, err))
		}
		// A pending batch was stored, here or by another process, but not acknowledged: it comes first, unchanged.
		if !x.pending {
			if last, err = e.composeBatch(ctx, x, apps, last); err != nil {
				return err
			}
			if !x.pending {
				return e.limitClaim(ctx, name, idleClaimTTL)
			}
		}
		if err := e.sendBatch(ctx, x, apps); err != nil {
			return errors.Join(err, e.recordError(context.WithoutCancel(ctx), name, err))
		}
		e.onDelivery(name, nil)
	}
	return ctx.Err()
}

// sendBatch sends the stored batch and acknowledges it.
func (e *Exporter) sendBatch(ctx context.Context, x *claim, apps map[db.ID]*appProgress) error {
	if err := e.readApps(ctx, x, apps); err != nil {
		return err
	}
	b := Batch{Export: x.name, Number: x.batch}
	var err error
	if b.Rows, err = e.loadBatch(ctx, x, apps); err != nil {
		return err
	}
	refused := 0
	// The apps of all rows may have been deleted. The empty batch is acknowledged without a delivery.
	if len(b.Rows) > 0 {
		sending, cancel := context.WithTimeout(ctx, deliverTimeout)
		defer cancel()
		if refused, err = e.sinks[x.name].Send(sending, b); err != nil {
			return fmt.Errorf("send batch %d of export %s: %w", x.batch, x.name, err)
		}
	}
	if refused > 0 {
		e.log.WarnContext(ctx, "usage was refused and is not exported", "export", x.name, "batch", x.batch, "rows", refused)
	}
	return e.acknowledgeBatch(ctx, x, apps, b.Rows, refused)
}

// appProgress is the progress of an export within one app.
type appProgress struct {
	id     db.ID
	name   string
	labels map[string]string
	// sealed is a time in Unix microseconds: all rows recorded before it are exported, or are none. It only increases.
	sealed int64
	// hasMarks is set if table usage_exported may have marks for rows recorded at sealed or later.
	hasMarks bool
}

// readApps fills apps with all apps and their cursors, unless it is filled already. The default app has no row in table
// app.
func (e *Exporter) readApps(ctx context.Context, x *claim, apps map[db.ID]*appProgress) error {
	if len(apps) > 0 {
		return nil
	}
	var b db.Batch
	b.Query(func(r db.Row) error {
		a := appProgress{sealed: x.since, hasMarks: true}
		var labels string
		var sealed int64
		if err := r.Scan((*string)(&a.id), &a.name, &labels, &sealed); err != nil {
			return err
		}
		a.sealed = max(a.sealed, sealed)
		apps[a.id] = &a
		return json.Unmarshal([]byte(labels), &a.labels)
	}, `SELECT a.tenant, a.name, a.labels, COALESCE(c.sealed, 0)
		FROM (SELECT tenant, name, labels FROM app UNION ALL SELECT 'default', 'default', '{}') a
		LEFT JOIN export_cursor c ON c.tenant = a.tenant AND c.export = $1`, x.name)
	return e.db.Platform().Do(ctx, &b)
}
