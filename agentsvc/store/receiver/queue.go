package receiver

import (
	"context"
	"fmt"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Queue reads and changes the receivers of all tenants, for the processes that deliver notifications.
type Queue struct {
	h *db.Handle
}

// NewQueue returns the receivers in d.
func NewQueue(d *db.DB) *Queue { return &Queue{d.Platform()} }

// Claimed is a receiver that one delivery worker has leased: only that worker delivers to it until the lease
// ends.
type Claimed struct {
	Receiver
	Tenant     db.ID
	FailingFor time.Duration // time since the first failure after the last success; 0 = the last delivery succeeded
	// holder identifies the claim; every later change of the receiver is conditional on it.
	holder string
}

// Claim leases at most n receivers that have undelivered events and are due, for the given time: of no
// tenant more than perTenant in all processes together, each tenant's longest waiting first. With an error it returns none:
// the claim may not be committed.
func (q *Queue) Claim(ctx context.Context, n, perTenant int, lease time.Duration) (claimed []*Claimed, err error) {
	skip := ""
	if q.h.Engine() == db.Postgres {
		skip = " FOR UPDATE OF r SKIP LOCKED"
	}
	holder := agentsvc.NewID()
	err = q.execBatch(ctx, "claim receivers", func(b *db.Batch) {
		b.Query(func(r db.Row) error {
			t := &Claimed{holder: holder}
			var since, now int64
			err := r.Scan((*string)(&t.Tenant), (*string)(&t.Task), &t.ID, &t.Format, &t.Value, &t.DeliveredSeq, &t.Attempts, &since, &now)
			if since > 0 {
				t.FailingFor = time.Duration(now-since) * time.Microsecond
			}
			claimed = append(claimed, t)
			return err
			// Leased receivers rank first in their tenant, so they count against perTenant. The claim repeats the
			// lease condition: on PostgreSQL a row may have been leased since ranked was computed.
		}, `WITH ranked AS (SELECT r.tenant, r.task, r.id, r.due_at, r.until > stoa_now() AS held,
				ROW_NUMBER() OVER (PARTITION BY r.tenant ORDER BY CASE WHEN r.until > stoa_now() THEN 0 ELSE 1 END, r.due_at) AS place
			FROM receiver r WHERE r.state = 'open' AND (r.until > stoa_now() OR r.due_at <= stoa_now()
				AND EXISTS (SELECT 1 FROM task t WHERE t.tenant = r.tenant AND t.id = r.task AND t.seq > r.told))),
			free AS MATERIALIZED (SELECT r.tenant, r.task, r.id FROM receiver r
				JOIN ranked k ON k.tenant = r.tenant AND k.task = r.task AND k.id = r.id
				WHERE NOT k.held AND k.place <= $3 AND r.until <= stoa_now() ORDER BY k.place, k.due_at LIMIT $4`+skip+`)
			UPDATE receiver SET holder = $1, until = stoa_now() + CAST($2 AS BIGINT) WHERE (tenant, task, id) IN (SELECT tenant, task, id FROM free)
			RETURNING tenant, task, id, form, value, told, attempts, failing_since, stoa_now()`,
			holder, lease.Microseconds(), perTenant, n)
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// MarkDelivered records that t has received the events up to a sequence, and renews the lease. With last, nothing
// follows: the receiver is done and the lease ends. It returns [agentsvc.ErrLeaseLost] if t is not leased by this
// claim any more, or deleted.
func (q *Queue) MarkDelivered(ctx context.Context, t *Claimed, seq int64, last bool, lease time.Duration) error {
	state := Open
	if last {
		state, lease = Done, 0
	}
	err := q.updateLeased(ctx, t, "record a delivery", `told = $5, state = $6, attempts = 0, failing_since = 0, error = '',
		until = stoa_now() + CAST($7 AS BIGINT)`, seq, string(state), lease.Microseconds())
	if err == nil {
		t.Receiver.DeliveredSeq, t.Attempts, t.FailingFor = seq, 0, 0
	}
	return err
}

// MarkFailed records a failed delivery and ends the lease. The receiver is due again after the given time.
func (q *Queue) MarkFailed(ctx context.Context, t *Claimed, reason string, again time.Duration) error {
	return q.updateLeased(ctx, t, "record why a delivery failed", `attempts = attempts + 1, error = $5, due_at = stoa_now() + CAST($6 AS BIGINT), until = 0,
		failing_since = CASE WHEN failing_since = 0 THEN stoa_now() ELSE failing_since END`, reason, again.Microseconds())
}

// MarkDead gives t up: nothing more is delivered to it.
func (q *Queue) MarkDead(ctx context.Context, t *Claimed, reason string) error {
	return q.updateLeased(ctx, t, "give up a receiver", `attempts = attempts + 1, error = $5, state = 'dead', until = 0`, reason)
}

// Release ends the lease of t without counting an attempt. The receiver is due again after the given time.
func (q *Queue) Release(ctx context.Context, t *Claimed, again time.Duration) error {
	return q.updateLeased(ctx, t, "release a receiver", `due_at = stoa_now() + CAST($5 AS BIGINT), until = 0`, again.Microseconds())
}

// Expedite makes a tenant's delayed receivers due now.
func (q *Queue) Expedite(ctx context.Context, tenant db.ID) error {
	return q.execBatch(ctx, "advance receivers", func(b *db.Batch) {
		b.Exec(nil, `UPDATE receiver SET due_at = stoa_now() WHERE tenant = $1 AND state = 'open' AND due_at > stoa_now()`, string(tenant))
	})
}

// updateLeased applies set to t's row if the claim still holds its lease. Parameters of set begin at $5. An expired
// lease that no other claim has taken still counts: until is a time in the past then, not 0.
func (q *Queue) updateLeased(ctx context.Context, t *Claimed, operation, set string, args ...any) error {
	var n int64
	err := q.execBatch(ctx, operation, func(b *db.Batch) {
		b.Exec(&n, `UPDATE receiver SET `+set+` WHERE tenant = $1 AND task = $2 AND id = $3 AND holder = $4 AND until > 0`,
			append([]any{string(t.Tenant), string(t.Task), t.ID, t.holder}, args...)...)
	})
	if err == nil && n == 0 {
		err = agentsvc.ErrLeaseLost
	}
	return err
}

// Count returns how many receivers of all tenants are open, and how many of these failed at the last
// attempt.
func (q *Queue) Count(ctx context.Context) (open, failing int64, err error) {
	err = q.execBatch(ctx, "count receivers", func(b *db.Batch) {
		b.Query(func(r db.Row) error { return r.Scan(&open, &failing) },
			`SELECT COUNT(*), COALESCE(SUM(CASE WHEN attempts > 0 THEN 1 ELSE 0 END), 0) FROM receiver WHERE state = 'open'`)
	})
	return open, failing, err
}

// execBatch executes the statements that add adds in one transaction; operation is for the error.
func (q *Queue) execBatch(ctx context.Context, operation string, add func(*db.Batch)) error {
	var b db.Batch
	add(&b)
	if err := q.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}
