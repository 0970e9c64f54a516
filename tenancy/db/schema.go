package db

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// ChangeSchema lends f a connection that may change the schema. On PostgreSQL it logs in at url, or where d was opened if
// url is ""; on SQLite url means nothing and all else waits for f.
func (d *DB) ChangeSchema(ctx context.Context, url string, f func(*sql.DB) error) error {
	if l, ok := d.engine.(*sqliteEngine); ok {
		return l.changeSchema(ctx, f)
	}
	if url == "" {
		url = d.url
	}
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	s := stdlib.OpenDB(*cfg)
	defer func() { _ = s.Close() }()
	return f(s)
}

// changeSchema hands the writing connection to f through its pool and takes it back.
func (l *sqliteEngine) changeSchema(ctx context.Context, f func(*sql.DB) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range l.writeStmts {
		_ = st.Close()
	}
	clear(l.writeStmts)
	if err := l.writeConn.Close(); err != nil {
		return err
	}
	ferr := f(l.writeDB)
	conn, err := l.writeDB.Conn(ctx)
	if err != nil {
		return err
	}
	l.writeConn = conn
	return ferr
}
