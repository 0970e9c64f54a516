package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// ChangeSchema calls f with a connection that may change the schema. On PostgreSQL it connects to url, or with the URL
// of d if url is "", so that migrations can use a login with more rights. On SQLite it lends the writing connection;
// all other writes wait for f.
func (d *DB) ChangeSchema(ctx context.Context, url string, f func(*sql.DB) error) error {
	if l, ok := d.engine.(*sqliteEngine); ok {
		return l.changeSchema(ctx, f)
	}
	if url == "" {
		url = d.url
	}
	return usePostgres(url, f)
}

// usePostgres calls f with a connection to url.
func usePostgres(url string, f func(*sql.DB) error) error {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	s := stdlib.OpenDB(*cfg)
	defer func() { _ = s.Close() }()
	return f(s)
}

// ReadSchema calls f with a connection to the platform's database at url, to read the state of the schema. A SQLite
// file is opened for reading only and not locked: another process may use it, and it is not created.
func ReadSchema(url string, f func(Engine, *sql.DB) error) error {
	path, ok := strings.CutPrefix(url, "sqlite://")
	if !ok {
		return usePostgres(url, func(s *sql.DB) error { return f(Postgres, s) })
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(abs); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the SQLite file %s does not exist: stoa migrate up creates it", path)
	}
	s, err := sql.Open("sqlite", readOnlySource(abs))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return f(SQLite, s)
}

// changeSchema releases the writing connection to f through its pool and takes it back. Prepared statements are closed
// first, since they would keep the connection and refer to the former schema.
func (e *sqliteEngine) changeSchema(ctx context.Context, f func(*sql.DB) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, st := range e.writeStmts {
		_ = st.Close()
	}
	clear(e.writeStmts)
	if err := e.writeConn.Close(); err != nil {
		return err
	}
	ferr := f(e.writeDB)
	conn, err := e.writeDB.Conn(ctx)
	if err != nil {
		return err
	}
	e.writeConn = conn
	return ferr
}
