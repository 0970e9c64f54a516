package store

import (
	"strconv"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// The two writes of every call, accept and record, have a second form on PostgreSQL: one statement instead of one for
// each table, which spares a third of the backend's work. SQLite has no data-modifying WITH, so the plain form is the
// one both know; the tests hold the two equal.

// fused is a statement under construction. Its parts follow each other in a WITH.
type fused struct {
	sql  strings.Builder
	args []any
}

// arg adds a parameter and writes it.
func (f *fused) arg(v any, cast string) {
	f.args = append(f.args, v)
	if cast == "" {
		f.sql.WriteByte('$')
		f.sql.WriteString(strconv.Itoa(len(f.args)))
		return
	}
	f.sql.WriteString("CAST($")
	f.sql.WriteString(strconv.Itoa(len(f.args)))
	f.sql.WriteString(" AS ")
	f.sql.WriteString(cast)
	f.sql.WriteByte(')')
}

// list adds parameters with commas between them.
func (f *fused) list(vs ...any) {
	for i, v := range vs {
		if i > 0 {
			f.sql.WriteString(", ")
		}
		cast := "TEXT"
		if _, number := v.(int64); number {
			cast = "BIGINT"
		}
		f.arg(v, cast)
	}
}

// events writes the rows of a VALUES, without tenant and task.
func (f *fused) events(evs []agentsvc.Event) error {
	for i, ev := range evs {
		kind, body, err := encodeEvent(ev)
		if err != nil {
			return err
		}
		if i > 0 {
			f.sql.WriteString(", ")
		}
		f.sql.WriteByte('(')
		f.list(ev.Seq, ev.At.UnixMicro(), kind, body)
		f.sql.WriteByte(')')
	}
	return nil
}

const insertEventsFrom = ` INSERT INTO event (tenant, task, seq, at, kind, body) SELECT $1, $2, v.column1, v.column2, v.column3, v.column4 FROM (VALUES `

// acceptFused adds the rows of a new task to b.
func (s *Store) acceptFused(b *db.Batch, run Run, evs []agentsvc.Event) error {
	status := lastStatus(evs)
	var f fused
	f.sql.WriteString(`WITH t AS (INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		VALUES (`)
	at := evs[0].At.UnixMicro()
	f.list(s.tenant, string(run.Task), run.Agent, string(run.Context), run.Owner.Issuer, run.Owner.Subject, string(status.Status.State),
		run.Epoch, run.Seq, status.Seq, run.Turn, at, at)
	f.sql.WriteString(`)), r AS (INSERT INTO run (tenant, task, turn, state, attempts, revision, first_seq, worker, priority, trace, available_at, last_error, created_at)
		VALUES ($1, $2, `)
	f.list(run.Turn, string(bornState(run)), run.Attempts, run.Revision, run.FirstSeq, run.Worker, int64(run.Priority), run.Trace)
	f.sql.WriteString(`, stoa_now(), '', stoa_now()))` + insertEventsFrom)
	if err := f.events(evs); err != nil {
		return err
	}
	f.sql.WriteString(`) AS v`)
	b.Exec(nil, f.sql.String(), f.args...)
	return nil
}

// recordFused adds rec's rows to b, if the task stands where run last saw it; w tells.
func (s *Store) recordFused(b *db.Batch, w *written, run *Run, rec Record, g *guard, now int64) error {
	var f fused
	f.sql.WriteString(`WITH t AS (UPDATE task SET seq = `)
	f.args = append(f.args, s.tenant, string(run.Task))
	f.list(g.seq)
	f.sql.WriteString(`, updated_at = `)
	f.list(now)
	if ev := lastStatus(rec.Events); ev != nil {
		f.sql.WriteString(`, status_seq = `)
		f.list(ev.Seq)
		f.sql.WriteString(`, state = `)
		f.list(string(ev.Status.State))
	}
	f.sql.WriteString(` WHERE tenant = $1 AND id = $2 AND epoch = `)
	f.list(run.Epoch)
	f.sql.WriteString(` AND seq = `)
	f.list(run.Seq)
	f.sql.WriteString(` AND state = 'working' RETURNING 1)`)
	if len(rec.Events) > 0 {
		f.sql.WriteString(`, e AS (` + insertEventsFrom)
		if err := f.events(rec.Events); err != nil {
			return err
		}
		f.sql.WriteString(`) AS v, t)`)
	}
	f.approvals(rec.Events)
	if rec.End != "" {
		f.sql.WriteString(`, r AS (UPDATE run SET worker = '', cut_off = FALSE, state = `)
		f.list(string(rec.End))
		f.sql.WriteString(`, available_at = stoa_now() + `)
		f.list(rec.Delay.Microseconds())
		f.sql.WriteString(`, ready = ` + rec.ready())
		f.sql.WriteString(`, last_error = `)
		f.list(rec.Error)
		f.sql.WriteString(` FROM t WHERE tenant = $1 AND task = $2 AND turn = `)
		f.list(run.Turn)
		f.sql.WriteString(` RETURNING followed)`)
	}
	if len(rec.Session) > 0 {
		if err := f.session(run, rec.Session, now); err != nil {
			return err
		}
	}
	if rec.End == "" {
		f.sql.WriteString(` SELECT COUNT(*) FROM t`)
		b.Query(func(r db.Row) error { return r.Scan(&w.n) }, f.sql.String(), f.args...)
		return nil
	}
	f.sql.WriteString(` SELECT (SELECT COUNT(*) FROM t), COALESCE((SELECT followed FROM r), FALSE)`)
	b.Query(func(r db.Row) error { return r.Scan(&w.n, &w.followed) }, f.sql.String(), f.args...)
	return nil
}

func (f *fused) approvals(evs []agentsvc.Event) {
	open := approvalsIn(evs)
	if len(open) == 0 {
		return
	}
	f.sql.WriteString(`, a AS (INSERT INTO approval (tenant, task, seq, due_at) SELECT $1, $2, v.column1, stoa_now() + NULLIF(v.column2, 0) FROM (VALUES `)
	for i, ev := range open {
		if i > 0 {
			f.sql.WriteString(", ")
		}
		f.sql.WriteByte('(')
		f.list(ev.Seq, ev.Approval.Timeout.Microseconds())
		f.sql.WriteByte(')')
	}
	f.sql.WriteString(`) AS v, t)`)
}

func (f *fused) session(run *Run, entries []agentsvc.Entry, now int64) error {
	body, err := encodeEntries(entries)
	if err != nil {
		return err
	}
	f.sql.WriteString(`, s AS (INSERT INTO session_turn (tenant, task, owner_iss, owner_sub, context_id, body, turn, epoch, at, position) SELECT $1, $2, `)
	iss := len(f.args) + 1
	f.list(run.Owner.Issuer, run.Owner.Subject, string(run.Context), body, run.Turn, run.Epoch, now)
	f.sql.WriteString(`, COALESCE((SELECT MAX(position) FROM session_turn WHERE tenant = $1 AND owner_iss = $` + strconv.Itoa(iss) +
		` AND owner_sub = $` + strconv.Itoa(iss+1) + ` AND context_id = $` + strconv.Itoa(iss+2) + `), 0) + 1 FROM t)`)
	return nil
}
