package db

import (
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// IsDuplicate reports whether err says that a row with the same key exists (SQLSTATE 23505 unique_violation).
func IsDuplicate(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code == "23505"
	}
	return isSQLiteDuplicate(err)
}

// IsFull reports whether err says that the database's disk is full (SQLSTATE 53100 disk_full, SQLITE_FULL).
func IsFull(err error) bool {
	var e *sqlite.Error
	return sqlState(err) == "53100" || errors.As(err, &e) && e.Code() == sqlite3.SQLITE_FULL
}

// isConnectionLost reports whether err says that a connection broke.
func isConnectionLost(err error) bool {
	var n net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &n)
}
