package db

import (
	"cmp"

	"github.com/jackc/pgx/v5"
)

// step is a statement of a pipeline, and whose it is: nil = nobody's alone.
type step struct {
	stmt
	of    *call
	whose []share // of each of the rows that it is about
}

// share is a row's call, and what counts it.
type share struct {
	of *call
	n  *int64
}

// company is how many batches of a tenant are worth statements that they share.
const company = 3

// pipeline returns the statements of calls, where one is about the rows of several of the same role and tenant. Where shared,
// which begins a transaction as enter does, is not empty, batches in company go by what they share, unless their tenant is one
// to be wary of; shares reports whether there are any.
func pipeline(enter, shared string, wary func(ID) bool, calls []*call) (steps []step, shares bool) {
	about := map[*rows]int{} // where in steps
	together := false
	for i, c := range calls {
		c.readErr = nil
		if i == 0 || !c.beside(calls[i-1]) {
			clear(about)
			begin := enter
			if together = shared != "" && inCompany(calls[i:]) && !wary(c.tenant); together {
				begin, shares = shared, true
			}
			steps = append(steps, step{stmt: stmt{sql: begin, args: []any{c.role, string(c.tenant)}}})
		}
		b := c.batch
		if together && b.Shared != nil {
			b = b.Shared
		}
		for _, s := range b.stmts {
			if s.about == nil {
				steps = append(steps, step{stmt: s, of: c})
				continue
			}
			at, ok := about[s.about]
			if !ok {
				at, about[s.about] = len(steps), len(steps)
				one := step{stmt: stmt{sql: s.about.sql, about: s.about}}
				if together {
					one.sql = s.about.shared
				}
				steps = append(steps, one)
			}
			to := &steps[at]
			to.rows = append(to.rows, s.rows...)
			for range s.rows {
				to.whose = append(to.whose, share{c, s.n})
			}
		}
	}
	for i := range steps {
		steps[i].fill()
	}
	return steps, shares
}

// inCompany reports whether enough of the first calls, those of one tenant, have something to share.
func inCompany(calls []*call) bool {
	n := 0
	for _, c := range calls {
		if !c.beside(calls[0]) {
			break
		}
		if c.batch.Shared != nil {
			n++
		}
	}
	return n >= company
}

// fill sets the arguments of a step that is about rows.
func (s *step) fill() {
	if s.about == nil {
		return
	}
	s.args = s.about.args(s.rows)
	if s.changes() {
		s.args = append(s.args, int64(len(s.rows)))
	}
}

// changes reports whether the step changes rows that are there.
func (s *step) changes() bool { return s.about != nil && s.about.sql == "" }

func receive(res pgx.BatchResults, steps []step) error {
	for _, s := range steps {
		if err := s.receive(res); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) receive(res pgx.BatchResults) error {
	switch {
	case s.changes() && s.about.told:
		rows, err := res.Query()
		if err != nil {
			return err
		}
		readErr, err := readAll(rows, func(r Row) error {
			var n int64
			err := r.Scan(&n)
			if err == nil {
				s.whose[n-1].tell()
			}
			return err
		})
		return cmp.Or(err, readErr)
	case s.read == nil:
		tag, err := res.Exec()
		if err != nil {
			return err
		}
		if s.changes() {
			for _, w := range s.whose {
				w.tell()
			}
		} else if s.n != nil {
			s.of.count(s.n, tag.RowsAffected())
		}
		return nil
	}
	rows, err := res.Query()
	if err != nil {
		return err
	}
	readErr, err := readAll(rows, s.of.reader(s.stmt))
	if err != nil {
		return err
	}
	s.of.readErr = cmp.Or(s.of.readErr, readErr)
	return nil
}

// tell tells the row's waiter that it counts.
func (w share) tell() { w.of.count(w.n, 1) }

// readAll calls read for each row. It tells an error of read, which undoes nothing, from one of the database.
func readAll(rows pgx.Rows, read func(Row) error) (readErr, err error) {
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err, nil
		}
	}
	return nil, rows.Err()
}
