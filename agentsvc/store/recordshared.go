package store

import "stoa/tenancy/db"

// On PostgreSQL, records that end a turn, the most frequent ones under load, have a second form (see
// [db.Batch].Shared): those of one tenant that are committed together share one statement for each table. It requires
// that every record's precondition holds and that no other task has written a turn's position; otherwise the batches
// fall back to the statements of addRecord. TestRecordTogether holds the forms equal; docs/performance.md has the gain.

var (
	// taskAdvanceChange is advanceTask for many records; the last argument is the precondition.
	taskAdvanceChange = db.NewRowChange("task", "tenant, id", `tenant TEXT, id TEXT, epoch BIGINT, was BIGINT, seq BIGINT, status_seq BIGINT, state TEXT, at BIGINT`,
		`seq = v.seq, status_seq = v.status_seq, state = v.state, updated_at = v.at`,
		`task.epoch = v.epoch AND task.seq = v.was AND task.state = 'working'`)
	// runEndChange is endRun for many records; it returns whether other runs of the session wait.
	runEndChange = db.NewReturningChange("run", "tenant, task, turn", `tenant TEXT, task TEXT, turn BIGINT, state TEXT, delay BIGINT, error TEXT`,
		`worker = '', cut_off = FALSE, state = v.state, available_at = stoa_now() + v.delay, ready = v.delay <= 0, last_error = v.error`, "run.followed")
	// sessionTurnInsert adds a turn to its session.
	sessionTurnInsert = db.NewInsertTarget("session_turn", `tenant TEXT, task TEXT, owner_iss TEXT, owner_sub TEXT, context_id TEXT, body TEXT, turn BIGINT, epoch BIGINT,
		at BIGINT, position BIGINT`, "")
)

// recordShared returns the record in statements that records share, nil where rec needs something that these do not
// do.
func (s *Runs) recordShared(w *recordResult, run *Run, rec Record, position int64, g *precondition, events [][]any, session string, now int64) *db.Batch {
	status := lastStatus(rec.Events)
	if status == nil || rec.EndState == "" || len(filterApprovals(rec.Events)) > 0 {
		return nil
	}
	id := string(run.Task)
	var b db.Batch
	b.ChangeRow(&w.advanced, taskAdvanceChange, []any{s.tenant, id, run.Epoch, run.Seq, g.seq, status.Seq, string(status.Status.State), now})
	b.InsertRows(eventInsert, events...)
	b.ChangeRow(&w.queuedRuns, runEndChange, []any{s.tenant, id, run.Turn, string(rec.EndState), rec.RetryDelay.Microseconds(), rec.Error})
	if len(rec.SessionEntries) > 0 {
		b.InsertRows(sessionTurnInsert, []any{s.tenant, id, run.Owner.Issuer, run.Owner.Subject, string(run.Context), session, run.Turn, run.Epoch, now, position})
	}
	return &b
}
