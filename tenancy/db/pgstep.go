package db

import (
	"cmp"

	"github.com/jackc/pgx/v5"
)

// pipelineStep is one statement of a pipeline. owner is the batch it belongs to; it is nil for the statement that
// begins a scope and for a merged one, which has rowOwners instead.
type pipelineStep struct {
	stmt
	owner *pendingBatch
	// rowOwners has, for each element of rows, the batch it came from.
	rowOwners []rowOwner
}

// rowOwner is the batch of one row of a merged statement, and the variable that receives the row's count.
type rowOwner struct {
	owner    *pendingBatch
	affected *int64
}

// minBatch is how many batches with a shared form one tenant must have in a group for the shared statements to be used.
const minBatch = 3

// buildPipeline returns the statements of calls in order. Consecutive calls of the same role and tenant form a scope,
// which begins with the statement that sets them; rows for the same rowStatement within a scope are merged into one
// step. If shared, an alternative beginning, is not empty, a scope with at least minBatch shared forms uses these, with all
// their inserted rows new, unless its tenant is backed off; shares reports whether any scope does.
func buildPipeline(beginSQL, shared string, backedOff func(ID) bool, calls []*pendingBatch) (steps []pipelineStep, shares bool) {
	about := map[*rowStatement]int{} // index in steps of the merged statement, within the present scope
	sharing := false
	for i, c := range calls {
		c.readErr = nil
		// A new scope: merged statements must not mix tenants, whose rows the policies separate by the transaction's
		// setting.
		if i == 0 || !c.hasSameScope(calls[i-1]) {
			clear(about)
			begin := beginSQL
			if sharing = shared != "" && hasMinBatch(calls[i:]) && !backedOff(c.tenant); sharing {
				begin, shares = shared, true
			}
			steps = append(steps, pipelineStep{stmt: stmt{sql: begin, args: []any{c.role, string(c.tenant)}}})
		}
		b := c.batch
		isShared := sharing && b.Shared != nil
		if isShared {
			b = b.Shared
		}
		for _, s := range b.stmts {
			if s.rowStmt == nil {
				steps = append(steps, pipelineStep{stmt: s, owner: c})
				continue
			}
			into := s.rowStmt
			if isShared && into.allNew != nil {
				into = into.allNew
			}
			at, ok := about[into]
			if !ok {
				at, about[into] = len(steps), len(steps)
				steps = append(steps, pipelineStep{stmt: stmt{rowStmt: into}})
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

// hasMinBatch reports whether the scope that begins with calls[0] has at least minBatch batches with a shared form.
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

// setArgs sets the statement and the arguments of a merged step.
func (s *pipelineStep) setArgs() {
	if s.rowStmt != nil {
		s.sql, s.args = s.rowStmt.mergeRows(s.rows)
	}
}

func (s *pipelineStep) isRowChange() bool { return s.rowStmt != nil && s.rowStmt.isChange }

// receiveResults reads the result of each step in order. It returns the first error of the database.
func receiveResults(res pgx.BatchResults, steps []pipelineStep) error {
	for _, s := range steps {
		if err := s.receiveResult(res); err != nil {
			return err
		}
	}
	return nil
}

// receiveResult reads the step's result and passes it to the batches it belongs to. A row change without returned rows
// has affected every row, or else it would have failed.
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

// countRow sets the row's affected count to 1.
func (o rowOwner) countRow() { o.owner.setRowCount(o.affected, 1) }

// readPostgresRows calls read for each row. It returns an error of read, which must not undo the transaction,
// separately from one of the database.
func readPostgresRows(rows pgx.Rows, read func(Row) error) (readErr, err error) {
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}
