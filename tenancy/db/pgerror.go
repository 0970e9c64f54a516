package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// isRolledBack reports whether err proves that a pipeline had no effect, for a reason in the pipeline itself.
func isRolledBack(err error) bool {
	var pgErr *pgconn.PgError
	var early pgx.ErrPreprocessingBatch
	return errors.As(err, &pgErr) || errors.As(err, &early)
}

// isConflict reports whether err is a deadlock (SQLSTATE 40P01) or a serialization failure (40001): the same
// transaction may succeed when it is repeated.
func isConflict(err error) bool { return sqlState(err) == "40P01" || sqlState(err) == "40001" }

// isPreconditionFailed reports whether a shared statement met a row that was not in the expected state. The statement
// divides by zero for such a row (SQLSTATE 22012): this is the only way to abort a pipeline from within one statement
// without a function in the database. The caller then runs each batch's own statements. See [NewRowChange].
func isPreconditionFailed(err error) bool { return sqlState(err) == "22012" }

// isLockTimeout reports whether a row stayed locked for longer than lock_timeout (SQLSTATE 55P03).
func isLockTimeout(err error) bool { return sqlState(err) == "55P03" }

// isUnsent reports whether the connection was closed before anything was sent on it.
func isUnsent(err error) bool { return errors.Is(err, pgconn.ErrConnClosed) }

// isSessionEnded reports whether the server ended the session before the transaction did (SQLSTATE 57P01), for instance
// at a restart; nothing was committed.
func isSessionEnded(err error) bool { return sqlState(err) == "57P01" }

// sqlState returns the SQLSTATE of an error of PostgreSQL, "" for any other.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// classifyCommitError adds [ErrUnknownOutcome] to an error after which the transaction may have committed. It leaves
// the others, after which it certainly has not.
func classifyCommitError(err error) error {
	switch {
	case err == nil, isRolledBack(err), pgconn.SafeToRetry(err):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isConnectionLost(err),
		errors.Is(err, errDriverPanic), errors.Is(err, errAnswerTooLarge):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
