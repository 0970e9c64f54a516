package db

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// transientStates are SQLSTATE classes and codes of temporary failures: connection exceptions, insufficient resources,
// operator intervention, lock not available, serialization failure, deadlock.
var transientStates = []string{"08", "53", "57", "55P03", "40001", "40P01"}

// transientResults are SQLite's result codes of failures that are temporary or that the operator has to remedy: busy,
// locked, read-only, I/O error, full, cannot open.
var transientResults = []int{5, 6, 8, 10, 13, 14}

// IsRejected reports whether err is the database's final answer that a statement cannot be executed. It is false if the
// database did not answer, or may answer otherwise soon ([IsUnavailable]).
func IsRejected(err error) bool {
	var state interface{ SQLState() string }
	var result interface{ Code() int }
	return err != nil && !IsUnavailable(err) && (errors.As(err, &state) || errors.As(err, &result))
}

// IsUnavailable reports whether err says that the database does not answer at present, which is not the caller's fault
// and may pass. A timeout of the network alone is not counted: it is the caller's own deadline.
func IsUnavailable(err error) bool {
	var state interface{ SQLState() string }
	var result interface{ Code() int }
	var network net.Error
	switch {
	case IsOutage(err), errors.Is(err, ErrUnknownOutcome), errors.Is(err, ErrClosed), errors.Is(err, pgconn.ErrConnClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network) && !network.Timeout():
		return true
	case errors.As(err, &state):
		return slices.ContainsFunc(transientStates, func(s string) bool { return strings.HasPrefix(state.SQLState(), s) })
	case errors.As(err, &result):
		return slices.Contains(transientResults, result.Code()&0xff)
	}
	return false
}
