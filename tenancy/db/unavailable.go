package db

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// States of PostgreSQL (SQLSTATE) that pass: connections, resources, an operator's hand, a lock or a statement that
// took too long.
var transientStates = []string{"08", "53", "57", "55P03", "40001", "40P01"}

// Results of SQLite that pass or that only the operator can cure: busy, locked, read-only, I/O error, full, cannot open.
var transientResults = []int{5, 6, 8, 10, 13, 14}

// IsRejected reports whether err is the database's answer that a statement cannot be carried out, now or later: of one that did not
// answer, or answers otherwise soon, it is not.
func IsRejected(err error) bool {
	var state interface{ SQLState() string }
	var result interface{ Code() int }
	return err != nil && !IsUnavailable(err) && (errors.As(err, &state) || errors.As(err, &result))
}

// IsUnavailable reports whether err tells of a database that does not answer at present, which is nobody's fault who asked.
func IsUnavailable(err error) bool {
	var state interface{ SQLState() string }
	var result interface{ Code() int }
	var network net.Error
	switch {
	case errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrClosed), errors.Is(err, pgconn.ErrConnClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network) && !network.Timeout():
		return true
	case errors.As(err, &state):
		return slices.ContainsFunc(transientStates, func(s string) bool { return strings.HasPrefix(state.SQLState(), s) })
	case errors.As(err, &result):
		return slices.Contains(transientResults, result.Code()&0xff)
	}
	return false
}
