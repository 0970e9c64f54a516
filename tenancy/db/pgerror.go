package db

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// undone reports whether err says for certain that a pipeline had no effect, for a reason that lies in it.
func undone(err error) bool {
	var pgErr *pgconn.PgError
	var early pgx.ErrPreprocessingBatch
	return errors.As(err, &pgErr) || errors.As(err, &early)
}

// conflict reports whether err is a deadlock or a serialization failure: the same transaction may succeed now.
func conflict(err error) bool { return code(err) == "40P01" || code(err) == "40001" }

// otherwise reports whether err says that a row was not as what is shared takes it to be.
func otherwise(err error) bool { return code(err) == "22012" }

// locked reports whether err says that a row stayed locked for longer than the transaction would wait.
func locked(err error) bool { return code(err) == "55P03" }

// unsent reports whether err says that the connection was closed before anything was sent on it.
func unsent(err error) bool { return errors.Is(err, pgconn.ErrConnClosed) }

// ended reports whether err says that the server ended the session before the transaction did: at a restart, or
// because an operator said so.
func ended(err error) bool { return code(err) == "57P01" }

func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// outcome tells an error after which the transaction may have committed from one after which it has not.
func outcome(err error) error {
	switch {
	case err == nil, undone(err), pgconn.SafeToRetry(err):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), lostConnection(err):
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
	return err
}
