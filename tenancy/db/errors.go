package db

import (
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// IsDuplicate reports whether err says that a row with the same key is already there.
func IsDuplicate(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code == "23505"
	}
	return isSQLiteDuplicate(err)
}

// IsFull reports whether err says that the database has no room left.
func IsFull(err error) bool {
	var e *sqlite.Error
	return sqlState(err) == "53100" || errors.As(err, &e) && e.Code() == sqlite3.SQLITE_FULL
}

// isConnectionLost reports whether err tells of a connection that broke.
func isConnectionLost(err error) bool {
	var n net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &n)
}
