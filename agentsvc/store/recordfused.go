package store

import (
	"strconv"
	"strings"
	"sync"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// On PostgreSQL a record is one statement with data-modifying WITH clauses instead of one statement for each table,
// which saves a third of the backend's work. SQLite has no such WITH. TestRecordTogether and the tests of record.go
// hold the forms equal.

// fusedStatement builds such a statement. Statements of one shape have the same text, which is cached: later ones
// only collect arguments, and PostgreSQL reuses the prepared statement.
type fusedStatement struct {
	shape      statementShape
	cachedText string // the finished text; "" = it is being built in sql
	sql        strings.Builder
	args       []any
}

// statementShape is everything that a statement's text depends on.
type statementShape struct {
	status, end, ready, session, first bool
	events, approvals                  int
}

// maxCachedEvents bounds the number of events of statements whose texts are cached.
const maxCachedEvents = 16

// fusedTexts is the cache of texts: statementShape to string.
var fusedTexts sync.Map

// newFusedStatement returns a statement of a shape, with its text if that is cached.
func newFusedStatement(sh statementShape) *fusedStatement {
	f := &fusedStatement{shape: sh, args: make([]any, 0, 32)}
	if text, ok := fusedTexts.Load(sh); ok {
		f.cachedText = text.(string)
	}
	return f
}

// statementText returns the statement's text and caches it for small records.
func (f *fusedStatement) statementText() string {
	if f.cachedText == "" {
		f.cachedText = f.sql.String()
		if f.shape.events <= maxCachedEvents {
			fusedTexts.Store(f.shape, f.cachedText)
		}
	}
	return f.cachedText
}

// writeSQL appends text, unless the text is cached.
func (f *fusedStatement) writeSQL(sql string) {
	if f.cachedText == "" {
		f.sql.WriteString(sql)
	}
}

// writeParameters appends arguments and their placeholders, separated by commas. Each is cast, since PostgreSQL
// cannot infer types in a VALUES list.
func (f *fusedStatement) writeParameters(vs ...any) {
	first := len(f.args)
	f.args = append(f.args, vs...)
	if f.cachedText != "" {
		return
	}
	for i, v := range vs {
		if i > 0 {
			f.writeSQL(", ")
		}
		cast := "TEXT"
		if _, number := v.(int64); number {
			cast = "BIGINT"
		}
		f.writeSQL("CAST($" + strconv.Itoa(first+i+1) + " AS " + cast + ")")
	}
}

// writeEvents appends the rows of a VALUES list. Tenant and task, the first two columns, are $1 and $2 for all rows.
func (f *fusedStatement) writeEvents(rows [][]any) {
	for i, row := range rows {
		if i > 0 {
			f.writeSQL(", ")
		}
		f.writeSQL("(")
		f.writeParameters(row[2:]...)
		f.writeSQL(")")
	}
}

// insertEventsFrom begins the INSERT of events; the join with t, the updated task, makes it conditional.
const insertEventsFrom = ` INSERT INTO event (tenant, task, seq, at, kind, body) SELECT $1, $2, v.column1, v.column2, v.column3, v.column4 FROM (VALUES `

// fusedShape returns the shape of rec's statement.
func (rec Record) fusedShape() statementShape {
	return statementShape{
		status: lastStatus(rec.Events) != nil, end: rec.EndState != "", ready: rec.RetryDelay <= 0, session: len(rec.SessionEntries) > 0, first: rec.isFirstTurn,
		events: len(rec.Events), approvals: len(filterApprovals(rec.Events)),
	}
}

// recordFused adds rec to b as one statement. Each part selects from t, the UPDATE of the task, so that nothing is
// written if the precondition does not hold. w receives the outcome.
func (s *Runs) recordFused(b *db.Batch, w *recordResult, run *Run, rec Record, g *precondition, now int64) error {
	events, err := s.eventRows(run.Task, rec.Events)
	if err != nil {
		return err
	}
	session, err := encodeEntries(rec.SessionEntries)
	if err != nil {
		return err
	}
	// The coalescer prefers the shared form and falls back to the statement below.
	b.Shared = s.recordShared(w, run, rec, g, events, session, now)
	f := newFusedStatement(rec.fusedShape())
	f.writeSQL(`WITH t AS (UPDATE task SET seq = `)
	f.args = append(f.args, s.tenant, string(run.Task))
	f.writeParameters(g.seq)
	f.writeSQL(`, updated_at = `)
	f.writeParameters(now)
	if ev := lastStatus(rec.Events); ev != nil {
		f.writeSQL(`, status_seq = `)
		f.writeParameters(ev.Seq)
		f.writeSQL(`, state = `)
		f.writeParameters(string(ev.Status.State))
	}
	f.writeSQL(` WHERE tenant = $1 AND id = $2 AND epoch = `)
	f.writeParameters(run.Epoch)
	f.writeSQL(` AND seq = `)
	f.writeParameters(run.Seq)
	f.writeSQL(` AND state = 'working' RETURNING 1)`)
	if len(rec.Events) > 0 {
		f.writeSQL(`, e AS (` + insertEventsFrom)
		f.writeEvents(events)
		f.writeSQL(`) AS v, t)`)
	}
	f.writeApprovals(rec.Events)
	if rec.EndState != "" {
		f.writeSQL(`, r AS (UPDATE run SET worker = '', cut_off = FALSE, state = `)
		f.writeParameters(string(rec.EndState))
		f.writeSQL(`, available_at = stoa_now() + `)
		f.writeParameters(rec.RetryDelay.Microseconds())
		f.writeSQL(`, ready = ` + rec.readySQL())
		f.writeSQL(`, last_error = `)
		f.writeParameters(rec.Error)
		f.writeSQL(` FROM t WHERE tenant = $1 AND task = $2 AND turn = `)
		f.writeParameters(run.Turn)
		f.writeSQL(` RETURNING followed)`)
	}
	if len(rec.SessionEntries) > 0 {
		f.writeSession(run, session, now)
	}
	if rec.EndState == "" {
		f.writeSQL(` SELECT COUNT(*) FROM t`)
		b.Query(func(r db.Row) error { return r.Scan(&w.advanced) }, f.statementText(), f.args...)
		return nil
	}
	f.writeSQL(` SELECT (SELECT COUNT(*) FROM t), COALESCE((SELECT followed FROM r), FALSE)`)
	b.Query(func(r db.Row) error { return r.Scan(&w.advanced, &w.hasQueuedRuns) }, f.statementText(), f.args...)
	return nil
}

// writeApprovals adds the rows of the record's open approvals. A timeout of 0 becomes NULL: the approval never
// expires.
func (f *fusedStatement) writeApprovals(evs []agentsvc.Event) {
	open := filterApprovals(evs)
	if len(open) == 0 {
		return
	}
	f.writeSQL(`, a AS (INSERT INTO approval (tenant, task, seq, due_at) SELECT $1, $2, v.column1, stoa_now() + NULLIF(v.column2, 0) FROM (VALUES `)
	for i, ev := range open {
		if i > 0 {
			f.writeSQL(", ")
		}
		f.writeSQL("(")
		f.writeParameters(ev.Seq, ev.Approval.Timeout.Microseconds())
		f.writeSQL(")")
	}
	f.writeSQL(`) AS v, t)`)
}

// writeSession adds the row of the turn in its session.
func (f *fusedStatement) writeSession(run *Run, body string, now int64) {
	f.writeSQL(`, s AS (INSERT INTO session_turn (tenant, task, owner_iss, owner_sub, context_id, body, turn, epoch, at, position) SELECT $1, $2, `)
	iss := len(f.args) + 1
	f.writeParameters(run.Owner.Issuer, run.Owner.Subject, string(run.Context), body, run.Turn, run.Epoch, now)
	f.writeSQL(`, ` + positionSQL(f.shape.first, iss, iss+1, iss+2) + ` FROM t)`)
}

// A third form is for records that end a turn, the most frequent ones under load: records of one tenant that are
// committed together share one statement for each table. It requires that every record's precondition holds;
// otherwise the batch falls back to its own statement (see [db.Batch].Shared). Only a session's first turn can use
// it, since a later one must look up its position.

var (
	// taskAdvanceChange is advanceTask for many records; the last argument is the precondition.
	taskAdvanceChange = db.NewRowChange("task", "tenant, id", `tenant TEXT, id TEXT, epoch BIGINT, was BIGINT, seq BIGINT, status_seq BIGINT, state TEXT, at BIGINT`,
		`seq = v.seq, status_seq = v.status_seq, state = v.state, updated_at = v.at`,
		`task.epoch = v.epoch AND task.seq = v.was AND task.state = 'working'`)
	// runEndChange is endRun for many records; it returns whether other runs of the session wait.
	runEndChange = db.NewReturningChange("run", "tenant, task, turn", `tenant TEXT, task TEXT, turn BIGINT, state TEXT, delay BIGINT, error TEXT`,
		`worker = '', cut_off = FALSE, state = v.state, available_at = stoa_now() + v.delay, ready = v.delay <= 0, last_error = v.error`, "run.followed")
	// sessionTurnInsert adds the first turn of a session. If the session has one, the duplicate key makes the batch
	// fall back.
	sessionTurnInsert = db.NewInsertTarget("session_turn", `tenant TEXT, task TEXT, owner_iss TEXT, owner_sub TEXT, context_id TEXT, body TEXT, turn BIGINT, epoch BIGINT,
		at BIGINT, position = 1`, "")
)

// recordShared returns recordFused in statements that records share, nil where rec needs something that these do not
// do.
func (s *Runs) recordShared(w *recordResult, run *Run, rec Record, g *precondition, events [][]any, session string, now int64) *db.Batch {
	status := lastStatus(rec.Events)
	if status == nil || rec.EndState == "" || len(filterApprovals(rec.Events)) > 0 || len(rec.SessionEntries) > 0 && !rec.isFirstTurn {
		return nil
	}
	id := string(run.Task)
	var b db.Batch
	b.ChangeRow(&w.advanced, taskAdvanceChange, []any{s.tenant, id, run.Epoch, run.Seq, g.seq, status.Seq, string(status.Status.State), now})
	b.InsertRows(eventInsert, events...)
	b.ChangeRow(&w.queuedRuns, runEndChange, []any{s.tenant, id, run.Turn, string(rec.EndState), rec.RetryDelay.Microseconds(), rec.Error})
	if len(rec.SessionEntries) > 0 {
		b.InsertRows(sessionTurnInsert, []any{s.tenant, id, run.Owner.Issuer, run.Owner.Subject, string(run.Context), session, run.Turn, run.Epoch, now})
	}
	return &b
}
