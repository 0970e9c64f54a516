package billing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// How this process learns of changes that no signal reported: signals may be lost, and without Redis there are none
// between processes. So each change of prices, plans and budgets is also recorded in table billing_change, which every
// process reads each changesInterval by the index on generation. changesTimeout bounds one such read.
const (
	changesInterval = 500 * time.Millisecond
	changesTimeout  = 5 * time.Second
)

// changeCursor is the position up to which this process has read billing_change.
type changeCursor struct {
	// mu is held while changes are read and the caches with them, so that the cursor never passes a change that is not
	// read yet.
	mu sync.Mutex
	// lastGeneration is the highest generation that was read. Guarded by mu.
	lastGeneration int64
}

// recordChange records in tx that the object of topic and key has changed. It must be the last statement of tx that
// locks rows.
//
// The row with the empty topic is the counter of generations. Its update locks it until tx ends, so generations commit
// in their order: a reader that has seen one has seen all lower ones.
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

// skipChanges sets the cursor to the last recorded change. Open calls it before it fills the caches.
func (s *Service) skipChanges(ctx context.Context) error {
	s.changeCursor.mu.Lock()
	defer s.changeCursor.mu.Unlock()
	err := s.queryPlatform(ctx, func(r db.Row) error { return r.Scan(&s.changeCursor.lastGeneration) }, `SELECT generation FROM billing_change WHERE topic = '' AND key = ''`)
	if err != nil {
		return fmt.Errorf("read the last change: %w", err)
	}
	return nil
}

// readChanges reads again everything that any process has changed since the last call. After an error the cursor stays,
// and the next call reads the same changes again.
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
		// The counter's row, whose topic is empty, only advances the cursor.
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
			return err // the cursor stays: the next call reads it again
		}
	}
	s.changeCursor.lastGeneration = last
	return nil
}

// pollChanges calls readChanges every changesInterval until ctx ends. It logs the first failure of an outage, and its
// end.
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
