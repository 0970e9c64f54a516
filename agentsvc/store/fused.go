package store

import (
	"strconv"
	"strings"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// A record has a second form on PostgreSQL: one statement instead of one for each table, which spares a third of the
// backend's work. SQLite has no data-modifying WITH, so the plain form is the one both know; the tests hold them equal.

// fused is a statement under construction. Its parts follow each other in a WITH. Statements of one shape have one text,
// which is written once: for those that come after, only the arguments are gathered.
type fused struct {
	shape shape
	known string // the text, "" where it is to be written
	sql   strings.Builder
	args  []any
}

// shape is what the text of a statement depends on.
type shape struct {
	status, end, ready, session, first bool
	events, approvals                  int
}

// maxKnown bounds how many events those statements have whose texts are kept.
const maxKnown = 16

var fusedTexts sync.Map // shape to SQL

func newFused(sh shape) *fused {
	f := &fused{shape: sh, args: make([]any, 0, 32)}
	if text, ok := fusedTexts.Load(sh); ok {
		f.known = text.(string)
	}
	return f
}

// text returns the statement, and keeps its text where others will have the same.
func (f *fused) text() string {
	if f.known == "" {
		f.known = f.sql.String()
		if f.shape.events <= maxKnown {
			fusedTexts.Store(f.shape, f.known)
		}
	}
	return f.known
}

func (f *fused) write(sql string) {
	if f.known == "" {
		f.sql.WriteString(sql)
	}
}

// list adds parameters and writes them with commas between them.
func (f *fused) list(vs ...any) {
	first := len(f.args)
	f.args = append(f.args, vs...)
	if f.known != "" {
		return
	}
	for i, v := range vs {
		if i > 0 {
			f.write(", ")
		}
		cast := "TEXT"
		if _, number := v.(int64); number {
			cast = "BIGINT"
		}
		f.write("CAST($" + strconv.Itoa(first+i+1) + " AS " + cast + ")")
	}
}

// events writes the rows of a VALUES, without tenant and task.
func (f *fused) events(rows [][]any) {
	for i, row := range rows {
		if i > 0 {
			f.write(", ")
		}
		f.write("(")
		f.list(row[2:]...)
		f.write(")")
	}
}

const insertEventsFrom = ` INSERT INTO event (tenant, task, seq, at, kind, body) SELECT $1, $2, v.column1, v.column2, v.column3, v.column4 FROM (VALUES `

func (rec Record) shape() shape {
	return shape{
		status: lastStatus(rec.Events) != nil, end: rec.End != "", ready: rec.Delay <= 0, session: len(rec.Session) > 0, first: rec.first,
		events: len(rec.Events), approvals: len(approvalsIn(rec.Events)),
	}
}

// recordFused adds rec's rows to b, if the task stands where run last saw it; w tells.
func (s *Store) recordFused(b *db.Batch, w *written, run *Run, rec Record, g *guard, now int64) error {
	events, err := s.eventRows(run.Task, rec.Events)
	if err != nil {
		return err
	}
	session, err := encodeEntries(rec.Session)
	if err != nil {
		return err
	}
	b.Shared = s.recordShared(w, run, rec, g, events, session, now)
	f := newFused(rec.shape())
	f.write(`WITH t AS (UPDATE task SET seq = `)
	f.args = append(f.args, s.tenant, string(run.Task))
	f.list(g.seq)
	f.write(`, updated_at = `)
	f.list(now)
	if ev := lastStatus(rec.Events); ev != nil {
		f.write(`, status_seq = `)
		f.list(ev.Seq)
		f.write(`, state = `)
		f.list(string(ev.Status.State))
	}
	f.write(` WHERE tenant = $1 AND id = $2 AND epoch = `)
	f.list(run.Epoch)
	f.write(` AND seq = `)
	f.list(run.Seq)
	f.write(` AND state = 'working' RETURNING 1)`)
	if len(rec.Events) > 0 {
		f.write(`, e AS (` + insertEventsFrom)
		f.events(events)
		f.write(`) AS v, t)`)
	}
	f.approvals(rec.Events)
	if rec.End != "" {
		f.write(`, r AS (UPDATE run SET worker = '', cut_off = FALSE, state = `)
		f.list(string(rec.End))
		f.write(`, available_at = stoa_now() + `)
		f.list(rec.Delay.Microseconds())
		f.write(`, ready = ` + rec.ready())
		f.write(`, last_error = `)
		f.list(rec.Error)
		f.write(` FROM t WHERE tenant = $1 AND task = $2 AND turn = `)
		f.list(run.Turn)
		f.write(` RETURNING followed)`)
	}
	if len(rec.Session) > 0 {
		f.session(run, session, now)
	}
	if rec.End == "" {
		f.write(` SELECT COUNT(*) FROM t`)
		b.Query(func(r db.Row) error { return r.Scan(&w.n) }, f.text(), f.args...)
		return nil
	}
	f.write(` SELECT (SELECT COUNT(*) FROM t), COALESCE((SELECT followed FROM r), FALSE)`)
	b.Query(func(r db.Row) error { return r.Scan(&w.n, &w.followed) }, f.text(), f.args...)
	return nil
}

func (f *fused) approvals(evs []agentsvc.Event) {
	open := approvalsIn(evs)
	if len(open) == 0 {
		return
	}
	f.write(`, a AS (INSERT INTO approval (tenant, task, seq, due_at) SELECT $1, $2, v.column1, stoa_now() + NULLIF(v.column2, 0) FROM (VALUES `)
	for i, ev := range open {
		if i > 0 {
			f.write(", ")
		}
		f.write("(")
		f.list(ev.Seq, ev.Approval.Timeout.Microseconds())
		f.write(")")
	}
	f.write(`) AS v, t)`)
}

func (f *fused) session(run *Run, body string, now int64) {
	f.write(`, s AS (INSERT INTO session_turn (tenant, task, owner_iss, owner_sub, context_id, body, turn, epoch, at, position) SELECT $1, $2, `)
	iss := len(f.args) + 1
	f.list(run.Owner.Issuer, run.Owner.Subject, string(run.Context), body, run.Turn, run.Epoch, now)
	f.write(`, ` + position(f.shape.first, iss, iss+1, iss+2) + ` FROM t)`)
}

// A third form is for records that end a turn, which most do where many are written at once: those of a tenant share a
// statement for each table. It is not for a worker that has lost its lease, nor for a further turn of a session.

var (
	movedTask = db.NewChange("task", "tenant, id", `tenant TEXT, id TEXT, epoch BIGINT, was BIGINT, seq BIGINT, status_seq BIGINT, state TEXT, at BIGINT`,
		`seq = v.seq, status_seq = v.status_seq, state = v.state, updated_at = v.at`,
		`task.epoch = v.epoch AND task.seq = v.was AND task.state = 'working'`)
	endedRun = db.NewTold("run", "tenant, task, turn", `tenant TEXT, task TEXT, turn BIGINT, state TEXT, delay BIGINT, error TEXT`,
		`worker = '', cut_off = FALSE, state = v.state, available_at = stoa_now() + v.delay, ready = v.delay <= 0, last_error = v.error`, "run.followed")
	intoSession = db.NewInto("session_turn", `tenant TEXT, task TEXT, owner_iss TEXT, owner_sub TEXT, context_id TEXT, body TEXT, turn BIGINT, epoch BIGINT,
		at BIGINT, position = 1`, "")
)

// recordShared is recordFused in statements that records share, nil where rec has something that they do not write.
func (s *Store) recordShared(w *written, run *Run, rec Record, g *guard, events [][]any, session string, now int64) *db.Batch {
	status := lastStatus(rec.Events)
	if status == nil || rec.End == "" || len(approvalsIn(rec.Events)) > 0 || len(rec.Session) > 0 && !rec.first {
		return nil
	}
	id := string(run.Task)
	var b db.Batch
	b.Change(&w.n, movedTask, []any{s.tenant, id, run.Epoch, run.Seq, g.seq, status.Seq, string(status.Status.State), now})
	b.Insert(intoEvent, events...)
	b.Change(&w.told, endedRun, []any{s.tenant, id, run.Turn, string(rec.End), rec.Delay.Microseconds(), rec.Error})
	if len(rec.Session) > 0 {
		b.Insert(intoSession, []any{s.tenant, id, run.Owner.Issuer, run.Owner.Subject, string(run.Context), session, run.Turn, run.Epoch, now})
	}
	return &b
}
