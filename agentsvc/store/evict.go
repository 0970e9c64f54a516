package store

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// DeleteAll deletes all rows of a tenant in the tasks' database, of unfinished tasks too: tasks, sessions,
// credentials and limits. It is for a tenant whose own record is in another database.
func (s *Sweeper) DeleteAll(ctx context.Context) error {
	var b db.Batch
	for _, table := range append([]string{"task", "session_turn", "session_summary", "credential", "app"}, taskTables...) {
		b.Exec(nil, `DELETE FROM `+table+` WHERE tenant = $1`, s.tenant)
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("delete tasks and sessions: %w", err)
	}
	return nil
}

// EvictOldest deletes one round (maxSweepTasks) of the tenant's oldest finished tasks and of its longest idle
// sessions without an unfinished task, to free storage in the tasks' database. It returns how many tasks and sessions
// it deleted.
func (s *Sweeper) EvictOldest(ctx context.Context) (n int64, err error) {
	// A bound in the future selects every finished task and every idle session.
	now := time.Now().Add(time.Hour)
	err = s.h.RunTx(ctx, func(tx *db.Tx) error {
		old, err := s.listFinishedTasks(ctx, tx, "", now)
		if err != nil || len(old) == 0 {
			return err
		}
		n = int64(len(old))
		return s.deleteTasks(ctx, tx, old)
	})
	if err != nil {
		return n, fmt.Errorf("evict: %w", err)
	}
	// The sessions in this database, even if the tenant's sessions are external: only these free its storage.
	here := &Sweeper{s.tenantRows, &Sessions{tenant: s.tenant, h: s.h}, s.counts}
	idle, err := here.listOldestSessions(ctx)
	if err != nil {
		return n, fmt.Errorf("evict: %w", err)
	}
	for _, key := range idle {
		deleted, err := here.sessions.deleteSession(ctx, key, now)
		if err != nil {
			return n, fmt.Errorf("evict: %w", err)
		}
		if deleted {
			n++
		}
	}
	return n, nil
}

// listOldestSessions returns the sessions whose last turn is oldest, without those that have an unfinished task.
func (s *Sweeper) listOldestSessions(ctx context.Context) ([]agentsvc.SessionKey, error) {
	var keys []agentsvc.SessionKey
	var b db.Batch
	b.Query(func(r db.Row) error {
		var key agentsvc.SessionKey
		err := r.Scan(&key.Owner.Subject, &key.Owner.Issuer, (*string)(&key.Context))
		keys = append(keys, key)
		return err
	}, `SELECT owner_sub, owner_iss, context_id FROM session_turn WHERE tenant = $1
		GROUP BY owner_sub, owner_iss, context_id ORDER BY MAX(at) LIMIT $2`, s.tenant, maxSweepTasks)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, err
	}
	return s.excludeUnfinished(ctx, keys)
}
