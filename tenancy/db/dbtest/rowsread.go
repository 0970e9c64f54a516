package dbtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"stoa/tenancy/db"
)

// CountRowsRead returns how many rows and entries of indexes the statements of f read in the PostgreSQL database at url,
// which nothing else uses. It says what time cannot on a busy machine: whether the work grows with the rows that there are. f
// gets connections of its own, since the server adds up what a connection has read when it ends.
func CountRowsRead(t testing.TB, url string, f func(d *db.DB)) int64 {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	awaitAlone(t, conn)
	removeOldRows(t, conn)
	before := readRowCount(t, conn)
	d, err := db.Open(ctx, url, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f(d)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	awaitAlone(t, conn)
	return readRowCount(t, conn) - before
}

// awaitAlone returns when conn is the only connection to its database: a server ends a connection after its client has.
func awaitAlone(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	for tick := time.Tick(5 * time.Millisecond); ; <-tick {
		var others int64
		err := conn.QueryRow(context.Background(), `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&others)
		if err != nil {
			t.Fatal(err)
		}
		if others == 0 {
			return
		}
	}
}

// removeOldRows removes the versions of rows that no transaction sees any more: reading them counts as well.
func removeOldRows(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	var tables string
	err := conn.QueryRow(context.Background(), `SELECT COALESCE(string_agg(quote_ident(relname), ', '), '') FROM pg_stat_user_tables WHERE n_tup_ins > 0`).Scan(&tables)
	if err == nil && tables != "" {
		_, err = conn.Exec(context.Background(), `VACUUM `+tables)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readRowCount returns what all connections that have ended have read.
func readRowCount(t testing.TB, conn *pgx.Conn) (n int64) {
	t.Helper()
	err := conn.QueryRow(context.Background(),
		`SELECT CAST((SELECT SUM(seq_tup_read) FROM pg_stat_user_tables) + (SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes) AS BIGINT)`).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
