package billing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Signals may be lost, and without Redis none come. So each change of a price, a plan or a budget is also recorded in the
// database (billing_change), which every process reads twice a second: one look at an index.
const (
	changesInterval = 500 * time.Millisecond
	changesTimeout  = 5 * time.Second
)

// changeCursor is how far this process has read the recorded changes.
type changeCursor struct {
	mu             sync.Mutex // held by whoever reads them
	lastGeneration int64      // the highest generation whose change was read, under mu
}

// recordChange records in tx that what a topic names by key has changed. It must be the last statement of tx that locks rows: it
// makes other changes wait until tx ends.
func recordChange(ctx context.Context, tx *db.Tx, topic, key string) error {
	var generation int64
	err := tx.Query(ctx, func(r db.Row) error { return r.Scan(&generation) }, `INSERT INTO billing_change (topic, key, generation) VALUES ('', '', 1)
		ON CONFLICT (topic, key) DO UPDATE SET generation = billing_change.generation + 1 RETURNING generation`)
	if err != nil {
		return fmt.Errorf("record a change of %s: %w", topic, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO billing_change (topic, key, generation) VALUES ($1, $2, $3)
		ON CONFLICT (topic, key) DO UPDATE SET generation = excluded.generation`, topic, key, generation)
	if err != nil {
		return fmt.Errorf("record a change of %s: %w", topic, err)
	}
	return nil
}

// skipChanges takes all changes that are recorded by now as read. It is for a process that has read nothing yet and is about to
// read everything.
func (s *Service) skipChanges(ctx context.Context) error {
	s.changeCursor.mu.Lock()
	defer s.changeCursor.mu.Unlock()
	err := s.queryPlatform(ctx, func(r db.Row) error { return r.Scan(&s.changeCursor.lastGeneration) }, `SELECT generation FROM billing_change WHERE topic = '' AND key = ''`)
	if err != nil {
		return fmt.Errorf("read the last change: %w", err)
	}
	return nil
}

// readChanges reads again what was changed, by whichever process, since it was called last.
func (s *Service) readChanges(ctx context.Context) error {
	s.changeCursor.mu.Lock()
	defer s.changeCursor.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, changesTimeout)
	defer cancel()
	var changed []signal.Signal
	last := s.changeCursor.lastGeneration
	err := s.queryPlatform(ctx, func(r db.Row) error {
		var at signal.Signal
		var generation int64
		err := r.Scan(&at.Topic, &at.Key, &generation)
		if last = max(last, generation); at.Topic != "" {
			changed = append(changed, at)
		}
		return err
	}, `SELECT topic, key, generation FROM billing_change WHERE generation > $1`, s.changeCursor.lastGeneration)
	if err != nil {
		return fmt.Errorf("look for changed prices, plans and budgets: %w", err)
	}
	for _, at := range changed {
		if err := s.reloadTopic(ctx, at); err != nil {
			return err // it is read again
		}
	}
	s.changeCursor.lastGeneration = last
	return nil
}

// pollChanges reads changes until ctx ends. That it cannot is logged once.
func (s *Service) pollChanges(ctx context.Context) {
	tick := time.NewTicker(changesInterval)
	defer tick.Stop()
	healthy := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.readChanges(ctx)
		if ctx.Err() != nil || (err == nil) == healthy {
			continue
		}
		if healthy = err == nil; healthy {
			s.log.InfoContext(ctx, "changes of prices, plans and budgets are read again")
		} else {
			s.log.WarnContext(ctx, "prices, plans and budgets are used as last known", "error", err)
		}
	}
}
