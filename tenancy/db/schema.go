package db

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Schema lends f a connection that may change the schema. On PostgreSQL it logs in at url, or where d was opened if
// url is ""; on SQLite url means nothing and all else waits for f.
func (d *DB) Schema(ctx context.Context, url string, f func(*sql.DB) error) error {
	if l, ok := d.engine.(*lite); ok {
		return l.schema(ctx, f)
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

// schema hands the writing connection to f through its pool and takes it back.
func (l *lite) schema(ctx context.Context, f func(*sql.DB) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, st := range l.stmts {
		_ = st.Close()
	}
	clear(l.stmts)
	if err := l.conn.Close(); err != nil {
		return err
	}
	ferr := f(l.write)
	conn, err := l.write.Conn(ctx)
	if err != nil {
		return err
	}
	l.conn = conn
	return ferr
}
