package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// Usage rows that the database cannot accept at present wait in memory and are written later. A row has a key of its
// own, so it counts once even if an earlier attempt took effect. Rows that wait when the process ends are lost;
// [Service.PendingUsage] and the metric stoa_usage_lost_total report losses.
const (
	// pendingPerApp bounds the waiting rows of one app, so that one app cannot use up pendingTotal.
	pendingPerApp = 5_000
	// pendingTotal bounds the waiting rows of all apps, which are some 30 MB.
	pendingTotal = 50_000
	// pendingInterval is the pause between attempts, pendingTimeout bounds one write, pendingBatchSize is the number of
	// rows in it.
	pendingInterval  = time.Second
	pendingTimeout   = 5 * time.Second
	pendingBatchSize = 100
)

// pendingUsage is the queue of this process's rows that wait for the database, in order per app.
type pendingUsage struct {
	// writeMu is held while rows are written, across round trips. It is taken before mu. Only its holder removes rows.
	writeMu sync.Mutex

	// mu guards the fields below. It is never held during a query.
	mu   sync.Mutex
	rows map[db.ID][]Row
	// waiting is the number of rows in the map.
	waiting int64
	// lost counts rows, since the process began, that exceeded the bounds or that the database rejected.
	lost int64
	// full is set when a row is lost because a bound was reached and reset when the queue is empty, so that the loss is
	// logged once.
	full bool
}

// writeUsage writes rows of an app. If the database does not respond they are queued, which is no error; a row that it
// rejects is one.
func (s *Service) writeUsage(ctx context.Context, app db.ID, rows []Row) error {
	var b db.Batch
	InsertRows(&b, app, rows)
	err := s.db.Tenant(app).Write(ctx, &b)
	if err == nil || db.IsRejected(err) {
		return err
	}
	s.QueueRows(app, rows)
	return nil
}

// QueueRows appends rows to the queue of an app, as far as the bounds allow. The others are lost and counted.
func (s *Service) QueueRows(app db.ID, rows []Row) {
	p := &s.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows == nil {
		p.rows = map[db.ID][]Row{}
	}
	available := min(pendingPerApp-len(p.rows[app]), int(pendingTotal-p.waiting))
	queued := rows[:min(len(rows), max(0, available))]
	p.rows[app] = append(p.rows[app], queued...)
	p.waiting += int64(len(queued))
	if lost := int64(len(rows) - len(queued)); lost > 0 {
		p.lost += lost
		if !p.full {
			p.full = true
			s.log.Error("the buffer of usage that waits for the database is full: further rows are lost, stoa_usage_lost_total counts them",
				"tenant", app, "waiting", p.waiting, "lost", p.lost)
		}
	}
}

// PendingUsage returns how many rows wait for the database, and how many were lost since the process began.
func (s *Service) PendingUsage() (waiting, lost int64) {
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	return s.pending.waiting, s.pending.lost
}

// WritePending writes the queued rows and has the balances that count them computed again. It stops at the first write
// that the database does not answer; the remaining rows stay queued. A row that the database rejects is logged, dropped
// and counted as lost.
func (s *Service) WritePending(ctx context.Context) error {
	p := &s.pending
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	var errs []error
	for _, app := range p.pendingApps() {
		var written []Row
		for rows := p.oldestRows(app, pendingBatchSize); len(rows) > 0; rows = p.oldestRows(app, pendingBatchSize) {
			err := s.writePendingRows(ctx, app, rows)
			if db.IsRejected(err) && len(rows) > 1 {
				// One row of the batch is invalid. Writing the oldest alone finds it in the end and loses no other row.
				rows = rows[:1]
				err = s.writePendingRows(ctx, app, rows)
			}
			switch {
			case err == nil:
				written = append(written, rows...)
				p.dropRows(app, len(rows), false)
			case db.IsRejected(err):
				s.log.ErrorContext(ctx, "a row of usage is lost: the database refuses it", "tenant", app, "task", rows[0].Task, "key", rows[0].Key, "error", err)
				p.dropRows(app, len(rows), true)
			default:
				return errors.Join(append(errs, fmt.Errorf("write usage that waits: %w", err), s.reportWritten(ctx, app, written))...)
			}
		}
		errs = append(errs, s.reportWritten(ctx, app, written))
	}
	return errors.Join(errs...)
}

// writePendingRows writes rows of the queue, with a timeout of their own.
func (s *Service) writePendingRows(ctx context.Context, app db.ID, rows []Row) error {
	ctx, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	var b db.Batch
	InsertRows(&b, app, rows)
	return s.db.Tenant(app).Write(ctx, &b)
}

// Run calls WritePending every pendingInterval while rows wait, until ctx ends. It logs the beginning and the end of an
// outage once.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(pendingInterval)
	defer tick.Stop()
	waits := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		n, lost := s.PendingUsage()
		if n == 0 {
			continue
		}
		if !waits {
			waits = true
			s.log.WarnContext(ctx, "usage waits for the database", "rows", n)
		}
		err := s.WritePending(ctx)
		left, now := s.PendingUsage()
		if left > 0 || ctx.Err() != nil {
			continue
		}
		waits = false
		s.log.InfoContext(ctx, "usage that waited for the database is written", "rows", n, "lost", now-lost)
		if err != nil {
			s.log.WarnContext(ctx, "balances of budgets may lack usage that waited for the database until they are computed again", "error", err)
		}
	}
}

// pendingApps returns the apps that have rows in the queue, sorted.
func (p *pendingUsage) pendingApps() []db.ID {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]db.ID, 0, len(p.rows))
	for app := range p.rows {
		list = append(list, app)
	}
	slices.Sort(list)
	return list
}

// oldestRows returns a copy of at most n of the oldest rows of an app. They stay queued until dropRows: a write that
// fails loses none.
func (p *pendingUsage) oldestRows(app db.ID, n int) []Row {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.rows[app][:min(n, len(p.rows[app]))])
}

// dropRows removes the n oldest rows of an app. The caller holds writeMu, so they are the ones that oldestRows
// returned.
func (p *pendingUsage) dropRows(app db.ID, n int, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows[app] = p.rows[app][n:]; len(p.rows[app]) == 0 {
		delete(p.rows, app)
	}
	p.waiting -= int64(n)
	if lost {
		p.lost += int64(n)
	}
	if p.waiting == 0 {
		p.full = false
	}
}
