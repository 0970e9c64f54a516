package db

import (
	"cmp"

	"github.com/jackc/pgx/v5"
)

// pipelineStep is a statement of a pipeline, and whose it is: nil = nobody's alone.
type pipelineStep struct {
	stmt
	owner     *pendingBatch
	rowOwners []rowOwner // of each of the rows that it is about
}

// rowOwner is a row's call, and what counts it.
type rowOwner struct {
	owner    *pendingBatch
	affected *int64
}

// minBatch is how many batches of a tenant are worth statements that they share.
const minBatch = 3

// buildPipeline returns the statements of calls, where one is about the rows of several of the same role and tenant. Where shared,
// which begins a transaction as enter does, is not empty, batches in company go by what they share, unless their tenant is one
// to be wary of; shares reports whether there are any.
func buildPipeline(beginSQL, shared string, backedOff func(ID) bool, calls []*pendingBatch) (steps []pipelineStep, shares bool) {
	about := map[*rowStatement]int{} // where in steps
	sharing := false
	for i, c := range calls {
		c.readErr = nil
		if i == 0 || !c.hasSameScope(calls[i-1]) {
			clear(about)
			begin := beginSQL
			if sharing = shared != "" && hasMinBatch(calls[i:]) && !backedOff(c.tenant); sharing {
				begin, shares = shared, true
			}
			steps = append(steps, pipelineStep{stmt: stmt{sql: begin, args: []any{c.role, string(c.tenant)}}})
		}
		b := c.batch
		if sharing && b.Shared != nil {
			b = b.Shared
		}
		for _, s := range b.stmts {
			if s.rowStmt == nil {
				steps = append(steps, pipelineStep{stmt: s, owner: c})
				continue
			}
			at, ok := about[s.rowStmt]
			if !ok {
				at, about[s.rowStmt] = len(steps), len(steps)
				one := pipelineStep{stmt: stmt{sql: s.rowStmt.sql, rowStmt: s.rowStmt}}
				if sharing {
					one.sql = s.rowStmt.shared
				}
				steps = append(steps, one)
			}
			to := &steps[at]
			to.rows = append(to.rows, s.rows...)
			for range s.rows {
				to.rowOwners = append(to.rowOwners, rowOwner{c, s.affected})
			}
		}
	}
	for i := range steps {
		steps[i].setArgs()
	}
	return steps, shares
}

// hasMinBatch reports whether enough of the first calls, those of one tenant, have something to share.
func hasMinBatch(calls []*pendingBatch) bool {
	n := 0
	for _, c := range calls {
		if !c.hasSameScope(calls[0]) {
			break
		}
		if c.batch.Shared != nil {
			n++
		}
	}
	return n >= minBatch
}

// setArgs sets the arguments of a step that is about rows.
func (s *pipelineStep) setArgs() {
	if s.rowStmt == nil {
		return
	}
	s.args = s.rowStmt.columnArgs(s.rows)
	if s.isRowChange() {
		s.args = append(s.args, int64(len(s.rows)))
	}
}

// isRowChange reports whether the step changes rows that are there.
func (s *pipelineStep) isRowChange() bool { return s.rowStmt != nil && s.rowStmt.sql == "" }

func receiveResults(res pgx.BatchResults, steps []pipelineStep) error {
	for _, s := range steps {
		if err := s.receiveResult(res); err != nil {
			return err
		}
	}
	return nil
}

func (s *pipelineStep) receiveResult(res pgx.BatchResults) error {
	switch {
	case s.isRowChange() && s.rowStmt.returnsRow:
		rows, err := res.Query()
		if err != nil {
			return err
		}
		readErr, err := readPostgresRows(rows, func(r Row) error {
			var n int64
			err := r.Scan(&n)
			if err == nil {
				s.rowOwners[n-1].countRow()
			}
			return err
		})
		return cmp.Or(err, readErr)
	case s.readRow == nil:
		tag, err := res.Exec()
		if err != nil {
			return err
		}
		if s.isRowChange() {
			for _, w := range s.rowOwners {
				w.countRow()
			}
		} else if s.affected != nil {
			s.owner.setRowCount(s.affected, tag.RowsAffected())
		}
		return nil
	}
	rows, err := res.Query()
	if err != nil {
		return err
	}
	readErr, err := readPostgresRows(rows, s.owner.rowReader(s.stmt))
	if err != nil {
		return err
	}
	s.owner.readErr = cmp.Or(s.owner.readErr, readErr)
	return nil
}

// countRow tells the row's waiter that it counts.
func (w rowOwner) countRow() { w.owner.setRowCount(w.affected, 1) }

// readPostgresRows calls read for each row. It tells an error of read, which undoes nothing, from one of the database.
func readPostgresRows(rows pgx.Rows, read func(Row) error) (readErr, err error) {
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}
