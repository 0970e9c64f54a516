package store

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// sessionPosition is a position in the order of all turns of a tenant's sessions, that of the table's primary key.
type sessionPosition struct {
	session  agentsvc.SessionKey
	position int64
}

// deleteIdleSessions deletes the sessions whose last turn is older than before and that have no unfinished task. It
// adds their number to n.
func (s *Sweeper) deleteIdleSessions(ctx context.Context, before time.Time, n *int64) error {
	var at sessionPosition
	for {
		idle, next, err := s.sessions.listIdleSessions(ctx, at, before)
		if err != nil {
			return err
		}
		if idle, err = s.excludeUnfinished(ctx, idle); err != nil {
			return err
		}
		for _, key := range idle {
			deleted, err := s.sessions.deleteSession(ctx, key, before)
			if err != nil {
				return err
			}
			if deleted {
				*n++
			}
		}
		if next == nil {
			return nil
		}
		at = *next
		if err := pauseSweep(ctx); err != nil {
			return err
		}
	}
}

// listIdleSessions reads maxSweepSessions turns behind a position and returns the sessions whose turns among these are
// all older than before, and the position to continue at; nil = there are no more. deleteSession checks the rest of the
// session's turns.
func (s *Sessions) listIdleSessions(ctx context.Context, behind sessionPosition, before time.Time) (idle []agentsvc.SessionKey, next *sessionPosition, err error) {
	last := map[agentsvc.SessionKey]int64{}
	var b db.Batch
	seen := 0
	var at sessionPosition
	b.Query(func(r db.Row) error {
		var written int64
		err := r.Scan(&at.session.Owner.Subject, &at.session.Owner.Issuer, (*string)(&at.session.Context), &at.position, &written)
		last[at.session] = max(last[at.session], written)
		seen++
		return err
	}, `SELECT owner_sub, owner_iss, context_id, position, at FROM session_turn
		WHERE tenant = $1 AND (owner_sub, owner_iss, context_id, position) > ($2, $3, $4, $5)
		ORDER BY owner_sub, owner_iss, context_id, position LIMIT $6`,
		s.tenant, behind.session.Owner.Subject, behind.session.Owner.Issuer, string(behind.session.Context), behind.position, maxSweepSessions)
	if err := s.execBatch(ctx, &b); err != nil {
		return nil, nil, err
	}
	maps.DeleteFunc(last, func(_ agentsvc.SessionKey, written int64) bool { return written >= before.UnixMicro() })
	if seen == maxSweepSessions {
		next = &at
	}
	return slices.Collect(maps.Keys(last)), next, nil
}

// excludeUnfinished returns those of the sessions that have no unfinished task.
func (s *Sweeper) excludeUnfinished(ctx context.Context, idle []agentsvc.SessionKey) ([]agentsvc.SessionKey, error) {
	if len(idle) == 0 {
		return nil, nil
	}
	args := []any{s.tenant}
	placeholders := make([]string, len(idle))
	for i, key := range idle {
		args = append(args, string(key.Context))
		placeholders[i] = "$" + strconv.Itoa(len(args))
	}
	open := map[agentsvc.SessionKey]bool{}
	var b db.Batch
	b.Query(func(r db.Row) error {
		var key agentsvc.SessionKey
		err := r.Scan(&key.Owner.Subject, &key.Owner.Issuer, (*string)(&key.Context))
		open[key] = true
		return err
	}, `SELECT owner_sub, owner_iss, context_id FROM task WHERE tenant = $1 AND context_id IN (`+strings.Join(placeholders, ", ")+`)
		AND state IN ('submitted', 'working', 'input_required', 'auth_required')`, args...)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(idle, func(key agentsvc.SessionKey) bool { return open[key] }), nil
}

// deleteSession deletes a session and its summaries, unless it has had a turn since before, and reports whether it is
// deleted. A long session is deleted in several transactions, oldest turns first.
func (s *Sessions) deleteSession(ctx context.Context, key agentsvc.SessionKey, before time.Time) (deleted bool, err error) {
	args := []any{s.tenant, key.Owner.Subject, key.Owner.Issuer, string(key.Context)}
	for {
		var n int64
		var b db.Batch
		// The condition on at is checked again here: a turn that was added since the session was listed keeps the
		// session.
		b.Exec(&n, `DELETE FROM session_turn WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4
			AND position < $6 + (SELECT MIN(position) FROM session_turn WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4)
			AND NOT EXISTS (SELECT 1 FROM session_turn WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4 AND at >= $5)`,
			append(slices.Clone(args), before.UnixMicro(), maxSweepSessions)...)
		// Only with the last turn: a summary without its session could never be found.
		b.Exec(nil, `DELETE FROM session_summary WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4
			AND NOT EXISTS (SELECT 1 FROM session_turn WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 AND context_id = $4)`, args...)
		if err := s.execBatch(ctx, &b); err != nil || n < maxSweepSessions {
			return deleted || n > 0, err
		}
		deleted = true
		if err := pauseSweep(ctx); err != nil {
			return deleted, err
		}
	}
}
