package billing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Sink is where usage is exported to.
type Sink interface {
	// Send takes a batch, wholly or not at all as far as that can be. It may be given the same again, and then nothing comes
	// of it twice: the batch has the number and the rows that it had. refused are the rows that it will never take.
	Send(ctx context.Context, b ExportBatch) (refused int, err error)
}

// ExportBatch is some usage on its way out.
type ExportBatch struct {
	Export string
	Number int64 // 1, 2, 3 ... of the export
	Rows   []ExportRow
}

// ExportRow is a usage row with whose it is.
type ExportRow struct {
	App    string
	AppID  db.ID
	Labels map[string]string // of the app
	Usage
}

// Exporter sends usage out: each row once to each sink, the oldest of an app first. Any number of processes may run one;
// for each sink one is at work at a time.
type Exporter struct {
	service   *Service
	sinks     map[string]Sink
	processID string
	log       *slog.Logger
}

// NewExporter returns an exporter to sinks, by the names under which it is kept how far each is.
func (s *Service) NewExporter(sinks map[string]Sink) *Exporter {
	return &Exporter{service: s, sinks: sinks, processID: agentsvc.NewID(), log: s.log}
}

const (
	exportInterval = 15 * time.Second
	exportTimeout  = time.Minute // that a batch may take
	exportClaimTTL = 2 * exportTimeout
	maxBackoff     = 10 * time.Minute
	batchSize      = 500  // rows
	appsPerRead    = 20   // apps
	maxErrorBytes  = 1000 // bytes that are kept of one
)

// Run exports until ctx ends. A sink that does not take a batch is asked again after a while, and then less and less often;
// the others do not wait for it.
func (e *Exporter) Run(ctx context.Context) error {
	var sinks sync.WaitGroup
	for name := range e.sinks {
		sinks.Go(func() { e.runSink(ctx, name) })
	}
	sinks.Wait()
	<-ctx.Done()
	return ctx.Err()
}

func (e *Exporter) runSink(ctx context.Context, name string) {
	for wait := exportInterval; ; {
		err := e.deliverBatches(ctx, name)
		switch {
		case ctx.Err() != nil:
			left, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_ = e.releaseExport(left, name) // else its time runs out
			return
		case err != nil:
			e.log.WarnContext(ctx, "usage could not be exported and will be sent again", "export", name, "error", err, "in", wait)
			wait = min(2*wait, maxBackoff)
		default:
			wait = exportInterval
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// DeliverAll exports all that there is to every sink of which no other process is in charge.
func (e *Exporter) DeliverAll(ctx context.Context) error {
	var errs []error
	for name := range e.sinks {
		errs = append(errs, e.deliverBatches(ctx, name))
	}
	return errors.Join(errs...)
}

// deliverBatches sends batch after batch to a sink. What is written down before a batch goes out and after it has been taken is
// what lets another process go on where this one ends.
func (e *Exporter) deliverBatches(ctx context.Context, name string) error {
	apps, last := map[db.ID]*exportApp{}, db.ID("")
	for ctx.Err() == nil {
		x, err := e.claimExport(ctx, name)
		if err != nil || x == nil {
			return err
		}
		if err := e.notifyThresholds(ctx, x); err != nil {
			return errors.Join(err, e.recordError(context.WithoutCancel(ctx), name, err))
		}
		if !x.pending {
			if last, err = e.composeBatch(ctx, x, apps, last); err != nil || !x.pending {
				return err
			}
		}
		if err := e.sendBatch(ctx, x, apps); err != nil {
			return errors.Join(err, e.recordError(context.WithoutCancel(ctx), name, err))
		}
	}
	return ctx.Err()
}

// sendBatch has the sink take the batch that is under way, and writes down that it has.
func (e *Exporter) sendBatch(ctx context.Context, x *exportState, apps map[db.ID]*exportApp) error {
	if err := e.readApps(ctx, x, apps); err != nil {
		return err
	}
	b := ExportBatch{Export: x.name, Number: x.batch}
	var err error
	if b.Rows, err = e.loadBatch(ctx, x, apps); err != nil {
		return err
	}
	refused := 0
	if len(b.Rows) > 0 {
		sending, cancel := context.WithTimeout(ctx, exportTimeout)
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

// ExportStatus says how far an export is.
type ExportStatus struct {
	Name    string
	Batch   int64 // the last one
	Pending bool  // it is under way
	Rows    int64 // that were taken
	Refused int64 // that never will be
	Error   string
	Updated time.Time
}

// ListExports returns how far each export is, those included that no process carries out any more.
func (s *Service) ListExports(ctx context.Context) ([]ExportStatus, error) {
	list := []ExportStatus{}
	err := s.queryPlatform(ctx, func(r db.Row) error {
		var x ExportStatus
		var updated int64
		err := r.Scan(&x.Name, &x.Batch, &x.Pending, &x.Rows, &x.Refused, &x.Error, &updated)
		x.Updated = timeFromMicros(updated)
		list = append(list, x)
		return err
	}, `SELECT name, batch, pending, rows, refused, error, updated_at FROM export ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("read the exports: %w", err)
	}
	return list, nil
}

// exportApp is an app whose usage is exported.
type exportApp struct {
	id       db.ID
	name     string
	labels   map[string]string
	sealed   int64
	hasMarks bool // rows after sealed may be in batches already
}

// readApps reads the apps and how far each is, unless that is known.
func (e *Exporter) readApps(ctx context.Context, x *exportState, apps map[db.ID]*exportApp) error {
	if len(apps) > 0 {
		return nil
	}
	return e.service.queryPlatform(ctx, func(r db.Row) error {
		a := exportApp{sealed: x.since, hasMarks: true}
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
}
