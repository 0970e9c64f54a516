package billing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stoa/tenancy/db"
)

// Usage that the database cannot take at present waits in memory and is written when it can. A row has a key of its own, so that it
// counts once, whatever became of an earlier attempt. What waits when the process dies is lost.
const (
	pendingPerApp    = 5_000  // rows of one app that may wait
	pendingTotal     = 50_000 // rows of all apps: 30 MB
	pendingInterval  = time.Second
	pendingTimeout   = 5 * time.Second // of one write
	pendingBatchSize = 100             // rows in one write
)

// pendingUsage is the rows of this process that wait for the database.
type pendingUsage struct {
	writeMu sync.Mutex // held by whoever writes them

	mu      sync.Mutex
	rows    map[db.ID][]Usage
	waiting int64 // rows that wait
	lost    int64 // rows that found no room, or that the database refused, since the process began
	full    bool  // some found no room since the queue was empty
}

// writeUsage writes rows of an app. Where the database does not answer they wait for it, which is no error.
func (s *Service) writeUsage(ctx context.Context, app db.ID, rows []Usage) error {
	var b db.Batch
	insertUsage(&b, app, rows)
	err := s.db.Tenant(app).Write(ctx, &b)
	if err == nil || db.IsRejected(err) {
		return err
	}
	s.queueUsage(app, rows)
	return nil
}

// queueUsage has rows wait for the database, as far as there is room.
func (s *Service) queueUsage(app db.ID, rows []Usage) {
	p := &s.pending
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows == nil {
		p.rows = map[db.ID][]Usage{}
	}
	available := min(pendingPerApp-len(p.rows[app]), int(pendingTotal-p.waiting))
	queued := rows[:min(len(rows), max(0, available))]
	p.rows[app] = append(p.rows[app], queued...)
	p.waiting += int64(len(queued))
	if lost := int64(len(rows) - len(queued)); lost > 0 {
		p.lost += lost
		if !p.full {
			p.full = true
			s.log.Error("there is no room for more usage that waits for the database: further rows of it are lost, stoa_usage_lost_total counts them",
				"tenant", app, "waiting", p.waiting, "lost", p.lost)
		}
	}
}

// PendingUsage returns how many rows wait for the database, and how many were lost since the process began: there was no room for
// them, or the database refused them.
func (s *Service) PendingUsage() (waiting, lost int64) {
	s.pending.mu.Lock()
	defer s.pending.mu.Unlock()
	return s.pending.waiting, s.pending.lost
}

// WritePending writes the usage that waits for the database, and works out anew the balances that it counts in. It ends with the
// first write that the database does not answer; the rest waits on.
func (s *Service) WritePending(ctx context.Context) error {
	p := &s.pending
	p.writeMu.Lock()
	defer p.writeMu.Unlock()
	var errs []error
	for _, app := range p.pendingApps() {
		var written []Usage
		for rows := p.oldestRows(app, pendingBatchSize); len(rows) > 0; rows = p.oldestRows(app, pendingBatchSize) {
			err := s.writePendingRows(ctx, app, rows)
			if db.IsRejected(err) && len(rows) > 1 {
				rows = rows[:1] // one of them is wrong: the others are written one by one
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
				return errors.Join(append(errs, fmt.Errorf("write usage that waits: %w", err), s.recountBalances(ctx, app, written))...)
			}
		}
		errs = append(errs, s.recountBalances(ctx, app, written))
	}
	return errors.Join(errs...)
}

// writePendingRows writes rows that have waited.
func (s *Service) writePendingRows(ctx context.Context, app db.ID, rows []Usage) error {
	ctx, cancel := context.WithTimeout(ctx, pendingTimeout)
	defer cancel()
	var b db.Batch
	insertUsage(&b, app, rows)
	return s.db.Tenant(app).Write(ctx, &b)
}

// recountBalances works out anew the balances that rows of an app count in: their reservations may have lapsed before they were written.
func (s *Service) recountBalances(ctx context.Context, app db.ID, rows []Usage) error {
	if len(rows) == 0 {
		return nil
	}
	var errs []error
	for _, of := range []db.ID{"", app} {
		for _, b := range s.budgets.budgetsOf(of) {
			windows := map[int64]bool{}
			for _, u := range rows {
				if u.Kind != ModelCall || !b.Scope.coversCall(u.Agent, u.Owner, u.Provider, u.Model) {
					continue
				}
				since, _ := b.Window.Bounds(u.At, b.location)
				if !windows[since.UnixMicro()] {
					windows[since.UnixMicro()] = true
					_, err := s.RebuildBalance(ctx, b, since)
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

// flushPending writes what waits now and then until ctx ends.
func (s *Service) flushPending(ctx context.Context) {
	tick := time.NewTicker(pendingInterval)
	defer tick.Stop()
	waits := false
	for {
		select {
		case <-ctx.Done():
			return
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
		if left, now := s.PendingUsage(); left == 0 && ctx.Err() == nil {
			waits = false
			s.log.InfoContext(ctx, "usage that waited for the database is written", "rows", n, "lost", now-lost, "error", err)
		}
	}
}

// pendingApps returns those of which rows wait.
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

// oldestRows returns the oldest rows of an app, at most n. They stay where they are.
func (p *pendingUsage) oldestRows(app db.ID, n int) []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.rows[app][:min(n, len(p.rows[app]))])
}

// dropRows takes the n oldest rows of an app away: they are written, or lost.
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
