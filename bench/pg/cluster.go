// Package pg is the bench's hold on the PostgreSQL cluster that Stoa is measured on: databases of its own,
// the settings that decide what a commit costs, and pgbench as the baseline without a server.
package pg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"stoa/bench/proc"
)

// ErrRemote is returned where the cluster's processes are not on this machine.
var ErrRemote = errors.New("the cluster runs on another machine")

// Cluster is one PostgreSQL server and a login that may create databases.
type Cluster struct {
	url        *url.URL
	postmaster int // 0: not on this machine
}

// Open connects to the cluster once, to see that it is there and where its processes are.
func Open(ctx context.Context, rawURL string) (*Cluster, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("parse the PostgreSQL URL: %w", err)
	}
	c := &Cluster{url: u}
	conn, err := pgx.Connect(ctx, rawURL)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var backend int
	var started time.Time
	if err := conn.QueryRow(ctx, `SELECT pg_backend_pid(), pg_postmaster_start_time()`).Scan(&backend, &started); err != nil {
		return nil, fmt.Errorf("ask for the backend: %w", err)
	}
	if s, err := proc.ReadStat(backend); err == nil && s.Parent > 1 {
		c.postmaster = s.Parent
	}
	return c, nil
}

// URL is the address of a database of the cluster.
func (c *Cluster) URL(database string) string {
	u := *c.url
	u.Path = "/" + database
	return u.String()
}

// CPU is the processor time that the cluster's processes have used so far. It returns [ErrRemote] if they are elsewhere.
func (c *Cluster) CPU() (time.Duration, error) {
	if c.postmaster == 0 {
		return 0, ErrRemote
	}
	return proc.TreeCPU(c.postmaster)
}

// Fresh drops the database if it exists and creates it empty.
func (c *Cluster) Fresh(ctx context.Context, database string) error {
	if err := c.Drop(ctx, database); err != nil {
		return err
	}
	return c.exec(ctx, c.url.String(), "CREATE DATABASE "+pgx.Identifier{database}.Sanitize())
}

// Drop removes the database and its connections.
func (c *Cluster) Drop(ctx context.Context, database string) error {
	return c.exec(ctx, c.url.String(), "DROP DATABASE IF EXISTS "+pgx.Identifier{database}.Sanitize()+" WITH (FORCE)")
}

// Checkpoint writes out what is dirty, so that one contestant does not pay for the pages of the one before.
func (c *Cluster) Checkpoint(ctx context.Context) error {
	return c.exec(ctx, c.url.String(), "CHECKPOINT")
}

// DisableRowSecurity turns row-level security off for every table of the database and returns how many had it on.
func (c *Cluster) DisableRowSecurity(ctx context.Context, database string) (int, error) {
	conn, err := pgx.Connect(ctx, c.URL(database))
	if err != nil {
		return 0, fmt.Errorf("connect to %s: %w", database, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `SELECT CAST(CAST(oid AS regclass) AS text) FROM pg_class WHERE relkind IN ('r', 'p') AND relrowsecurity`)
	if err != nil {
		return 0, fmt.Errorf("list the protected tables: %w", err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, fmt.Errorf("list the protected tables: %w", err)
	}
	for _, table := range tables {
		_, err := conn.Exec(ctx, "ALTER TABLE "+table+" DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY")
		if err != nil {
			return 0, fmt.Errorf("turn row-level security of %s off: %w", table, err)
		}
	}
	return len(tables), nil
}

// Settings is the version and what decides the cost of a commit, for the head of a report.
func (c *Cluster) Settings(ctx context.Context) (version, settings string, err error) {
	conn, err := pgx.Connect(ctx, c.url.String())
	if err != nil {
		return "", "", fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var parts []string
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"} {
		var value string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return "", "", fmt.Errorf("read the setting %s: %w", name, err)
		}
		parts = append(parts, name+" "+value)
	}
	if err := conn.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&version); err != nil {
		return "", "", fmt.Errorf("read the version: %w", err)
	}
	return version, strings.Join(parts, ", "), nil
}

// Written is how many bytes the cluster has written to its log so far, and how many a database holds.
type Written struct{ WAL, Stored int64 }

// Written reads what was written so far.
func (c *Cluster) Written(ctx context.Context, database string) (w Written, err error) {
	conn, err := pgx.Connect(ctx, c.URL(database))
	if err != nil {
		return w, fmt.Errorf("connect to %s: %w", database, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT CAST(pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS BIGINT), pg_database_size(current_database())`).Scan(&w.WAL, &w.Stored)
	if err != nil {
		return w, fmt.Errorf("read what PostgreSQL has written: %w", err)
	}
	return w, nil
}

func (c *Cluster) exec(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
