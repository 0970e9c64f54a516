package store

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// HasUnfinishedTasks reports whether the tenant has a task that has not ended.
func (s *Store) HasUnfinishedTasks(ctx context.Context) (open bool, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&open) }, `SELECT EXISTS (SELECT 1 FROM task WHERE tenant = $1
		AND state IN ('submitted', 'working', 'input_required', 'auth_required'))`, s.tenant)
	if err := s.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("look for unfinished tasks: %w", err)
	}
	return open, nil
}

// DeleteAll deletes all rows of a tenant in the tasks' database, of unfinished tasks too: tasks, sessions,
// credentials and limits. It is for a tenant whose own record is in another database.
func (s *Store) DeleteAll(ctx context.Context) error {
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
func (s *Store) EvictOldest(ctx context.Context) (n int64, err error) {
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
	here := &Store{SessionStore: &SessionStore{tenant: s.tenant, h: s.h}, h: s.h, tenant: s.tenant}
	idle, err := here.listOldestSessions(ctx)
	if err != nil {
		return n, fmt.Errorf("evict: %w", err)
	}
	for _, key := range idle {
		deleted, err := here.deleteSession(ctx, key, now)
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
func (s *Store) listOldestSessions(ctx context.Context) ([]agentsvc.SessionKey, error) {
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

// ListTenantsBySize returns the tenants with events or session turns in d, those with the most bytes first. It reads
// all rows of both tables.
func ListTenantsBySize(ctx context.Context, d *db.DB) ([]db.ID, error) {
	var ids []db.ID
	var b db.Batch
	b.Query(func(r db.Row) error {
		var id string
		var size int64
		err := r.Scan(&id, &size)
		ids = append(ids, db.ID(id))
		return err
	}, `SELECT tenant, CAST(SUM(n) AS BIGINT) AS size FROM (SELECT tenant, octet_length(body) AS n FROM event
		UNION ALL SELECT tenant, octet_length(body) FROM session_turn) AS said GROUP BY tenant ORDER BY size DESC`)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("weigh tenants: %w", err)
	}
	return ids, nil
}
