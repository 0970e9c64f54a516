package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// Bounds of what is read of a session: its last turns, at least one. Older turns are left out.
const (
	maxTurns             = 1000
	maxConversationBytes = 16 << 20
)

// Sessions keeps the conversations of a tenant's users and agents. They are either in the database of the tasks,
// where a turn is written in the transaction that ends its run, or in an external database of the tenant, which has
// no common transaction with the log (see [Runs.WriteRecord]).
type Sessions struct {
	tenant string
	h      *db.Handle                                // nil = the sessions are external
	openDB func(ctx context.Context) (*db.DB, error) // opens the external database; called for each use
}

// NewExternalSessions returns the sessions of a tenant in the database that open returns. Errors of that database are
// [*UnavailableError]s.
func NewExternalSessions(tenant db.ID, open func(ctx context.Context) (*db.DB, error)) *Sessions {
	return &Sessions{tenant: string(tenant), openDB: open}
}

// Load reads the last turns of an owner's context, oldest first, without a bound on the memory they take.
func (s *Sessions) Load(ctx context.Context, owner agentsvc.Owner, id agentsvc.ContextID) (agentsvc.Session, error) {
	return s.LoadConversation(ctx, nil, Run{Owner: owner, Context: id})
}

// LoadConversation reads the conversation that run continues, oldest turn first, and reserves its bytes from
// memory. A turn that an earlier attempt of run wrote (external sessions only) is left out: the journal has it.
func (s *Sessions) LoadConversation(ctx context.Context, memory *capacity.MemoryReservation, run Run) (agentsvc.Session, error) {
	var turns [][]agentsvc.Entry
	// bytes is the size of the turns that are returned, first the position of the oldest of them. unread reports that
	// at least one was too large to be read at once, full that the following ones exceed maxConversationBytes.
	var bytes, first int64
	unread, full := false, false
	of := []any{s.tenant, run.Owner.Subject, run.Owner.Issuer, string(run.Context), string(run.Task), run.Turn}
	var b db.Batch
	read := func(r db.Row) error {
		var body []byte
		var position, size int64
		if err := r.Scan(&position, &size, &body); err != nil {
			return err
		}
		if full = full || bytes > 0 && bytes+size > maxConversationBytes; full {
			return nil
		}
		bytes, first = bytes+size, position
		if body == nil {
			unread = true
			return nil
		}
		entries, err := decodeEntries(body)
		for i := range entries {
			entries[i].Turn = position
		}
		turns = append(turns, entries)
		return err
	}
	b.Query(read, sizedTurnsSQL, append(of, maxTurns)...)
	if err := s.execBatch(ctx, &b); err != nil {
		return agentsvc.Session{}, fmt.Errorf("read session %s: %w", run.Context, err)
	}
	if err := memory.ReserveBytes(ctx, bytes); err != nil {
		return agentsvc.Session{}, err
	}
	if unread {
		// The sizes are known and reserved: read the same turns with their bodies.
		turns, bytes, full = nil, 0, false
		var large db.Batch
		large.Query(read, `SELECT position, octet_length(body), body`+fromSessionSQL+` AND position >= $7 ORDER BY position DESC`, append(of, first)...)
		if err := s.execBatch(ctx, &large); err != nil {
			return agentsvc.Session{}, fmt.Errorf("read session %s: %w", run.Context, err)
		}
	}
	slices.Reverse(turns)
	return agentsvc.Session{Context: run.Context, Entries: slices.Concat(turns...)}, nil
}

// fromSessionSQL selects the turns of a session without that of task $5, turn $6.
const fromSessionSQL = ` FROM session_turn WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4 AND NOT (task = $5 AND turn = $6)`

// sizedTurnsSQL reads position and size of a session's last turns, newest first, and the bodies where all of them
// together are small. It walks the primary key (tenant, owner_sub, owner_iss, context_id, position) backwards.
var sizedTurnsSQL = `SELECT position, octet_length(body), ` + smallBodySQL("body", "sized.total") + ` FROM session_turn
	CROSS JOIN (SELECT COALESCE(SUM(size), 0) AS total FROM (SELECT octet_length(body) AS size` + fromSessionSQL + ` ORDER BY position DESC LIMIT $7) AS sizes) AS sized
	WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4 AND NOT (task = $5 AND turn = $6) ORDER BY position DESC LIMIT $7`

// nextSessionPosition reads the position behind the last turn of run's session.
func (s *Runs) nextSessionPosition(ctx context.Context, run *Run) (position int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&position) },
		`SELECT COALESCE(MAX(position), 0) + 1 FROM session_turn WHERE tenant = $1 AND owner_iss = $2 AND owner_sub = $3 AND context_id = $4`,
		s.tenant, run.Owner.Issuer, run.Owner.Subject, string(run.Context))
	err = s.h.Do(ctx, &b)
	return position, err
}

// insertSessionTurn adds rec's turn, encoded as body, to its session at position, if the task is at g in rec's state.
// The statement must not read session_turn: SQLite would then copy the body to a temporary table first.
func (s *Runs) insertSessionTurn(b *db.Batch, run *Run, rec Record, position int64, g *precondition, body string, now int64) {
	b.Exec(nil, `INSERT INTO session_turn (tenant, owner_iss, owner_sub, context_id, position, task, turn, epoch, at, body)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),
			CAST($12 AS BIGINT), CAST($5 AS TEXT), CAST($10 AS BIGINT), CAST($7 AS BIGINT), CAST($11 AS BIGINT), CAST($6 AS TEXT)
		WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $5 AND epoch = $7 AND seq = $8 AND state = $9)`,
		s.tenant, run.Owner.Issuer, run.Owner.Subject, string(run.Context), string(run.Task), body, g.epoch, g.seq, string(rec.taskState()), run.Turn, now, position)
}

// Bounds of writes to an external session database.
const (
	sessionTimeout   = 10 * time.Second // for one transaction there
	maxWriteAttempts = 3
	writeBackoff     = 500 * time.Millisecond // before the second attempt; doubled for the third
)

// writeTurn writes what a turn adds to its external session. It is idempotent: a turn has one row, which a later
// attempt overwrites. It retries an unavailable database, and returns [agentsvc.ErrLeaseLost] if a worker with a
// higher epoch has written the turn.
func (s *Sessions) writeTurn(ctx context.Context, run *Run, entries []agentsvc.Entry) error {
	body, err := encodeEntries(entries)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		err := s.tryWriteTurn(ctx, run, body)
		var unavailable *UnavailableError
		if !errors.As(err, &unavailable) || try == maxWriteAttempts {
			return err
		}
		select {
		case <-time.After(writeBackoff << (try - 1)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryWriteTurn inserts the turn's row if there is none, sets its body, and reads back whether the row has this epoch.
// The row's epoch fences it: the tasks' epoch is not in this database. The INSERT has no body, because SQLite copies
// what such a statement inserts to a temporary table first.
func (s *Sessions) tryWriteTurn(ctx context.Context, run *Run, body string) error {
	var err error
	for range maxAttempts {
		var there int64
		b := db.Batch{StorageKind: db.StoresMore}
		at := []any{s.tenant, run.Owner.Issuer, run.Owner.Subject, string(run.Context), string(run.Task), run.Turn, run.Epoch}
		b.Exec(nil, `INSERT INTO session_turn (tenant, owner_iss, owner_sub, context_id, task, turn, epoch, at, body, position)
			SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS BIGINT), CAST($7 AS BIGINT), 0, '',
				COALESCE((SELECT MAX(position) FROM session_turn WHERE tenant = $1 AND owner_sub = $3 AND owner_iss = $2 AND context_id = $4), 0) + 1
			WHERE NOT EXISTS (SELECT 1 FROM session_turn WHERE tenant = $1 AND owner_sub = $3 AND owner_iss = $2 AND context_id = $4
				AND task = $5 AND turn = $6)`, at...)
		b.Exec(nil, `UPDATE session_turn SET epoch = $7, at = $8, body = $9 WHERE tenant = $1 AND owner_iss = $2 AND owner_sub = $3 AND context_id = $4
			AND task = $5 AND turn = $6 AND epoch <= $7`, append(slices.Clone(at), time.Now().UnixMicro(), body)...)
		b.Query(func(r db.Row) error { return r.Scan(&there) }, `SELECT COUNT(*) FROM session_turn WHERE tenant = $1 AND owner_iss = $2 AND owner_sub = $3
			AND context_id = $4 AND task = $5 AND turn = $6 AND epoch = $7`, at...)
		if err = s.execBatch(ctx, &b); !db.IsDuplicate(err) { // else another task of the session took the position
			if err == nil && there == 0 {
				err = agentsvc.ErrLeaseLost
			}
			break
		}
	}
	if err != nil {
		return fmt.Errorf("store turn %d of task %s in its session: %w", run.Turn, run.Task, err)
	}
	return nil
}

// deleteTurn removes the turn that writeTurn wrote, after the log refused the record, unless a later worker has
// written it since. If this fails as well, the session has a turn that the log does not have.
func (s *Sessions) deleteTurn(ctx context.Context, run *Run) error {
	var b db.Batch
	b.Exec(nil, `DELETE FROM session_turn WHERE tenant = $1 AND owner_iss = $2 AND owner_sub = $3 AND context_id = $4 AND task = $5 AND turn = $6 AND epoch = $7`,
		s.tenant, run.Owner.Issuer, run.Owner.Subject, string(run.Context), string(run.Task), run.Turn, run.Epoch)
	return s.execBatch(context.WithoutCancel(ctx), &b)
}

// execBatch executes b in the tasks' or in the external database, and turns errors of the latter into
// [*UnavailableError]s.
func (s *Sessions) execBatch(ctx context.Context, b *db.Batch) error {
	if s.h != nil {
		return s.h.Do(ctx, b)
	}
	short, cancel := context.WithTimeout(ctx, sessionTimeout)
	defer cancel()
	d, err := s.openDB(short)
	if err == nil {
		err = d.Tenant(db.ID(s.tenant)).Do(short, b)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &UnavailableError{err}
}
