package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// isRolledBack reports whether err says for certain that a pipeline had no effect, for a reason that lies in it.
func isRolledBack(err error) bool {
	var pgErr *pgconn.PgError
	var early pgx.ErrPreprocessingBatch
	return errors.As(err, &pgErr) || errors.As(err, &early)
}

// isConflict reports whether err is a deadlock or a serialization failure: the same transaction may succeed now.
func isConflict(err error) bool { return sqlState(err) == "40P01" || sqlState(err) == "40001" }

// isPreconditionFailed reports whether err says that a row was not as what is shared takes it to be.
func isPreconditionFailed(err error) bool { return sqlState(err) == "22012" }

// isLockTimeout reports whether err says that a row stayed locked for longer than the transaction would wait.
func isLockTimeout(err error) bool { return sqlState(err) == "55P03" }

// isUnsent reports whether err says that the connection was closed before anything was sent on it.
func isUnsent(err error) bool { return errors.Is(err, pgconn.ErrConnClosed) }

// isSessionEnded reports whether err says that the server ended the session before the transaction did: at a restart, or
// because an operator said so.
func isSessionEnded(err error) bool { return sqlState(err) == "57P01" }

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// classifyCommitError tells an error after which the transaction may have committed from one after which it has not.
func classifyCommitError(err error) error {
	switch {
	case err == nil, isRolledBack(err), pgconn.SafeToRetry(err):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isConnectionLost(err):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
