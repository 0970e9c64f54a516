package sqltable

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/tenancy/db"
)

// TestPageCountsAllColumns checks that a page ends at its bound whichever column is large.
func TestPageCountsAllColumns(t *testing.T) {
	t.Parallel()
	d, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "docs.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	const rows, size = 40, 1 << 20
	if _, err := d.ExecContext(t.Context(), `CREATE TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT printf('%04d', i) || hex(zeroblob($2)) AS long, printf('%04d', i) AS short FROM n`, rows, size/2); err != nil {
		t.Fatal(err)
	}
	tx, err := d.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, c := range []config.Table{
		{Table: "a", Columns: []string{"short"}, IDColumn: "long"},
		{Table: "a", Columns: []string{"short"}, IDColumn: "short", UpdatedColumn: "long"},
		{Table: "a", Columns: []string{"short"}, IDColumn: "short", AccessColumn: "long"},
	} {
		table := &table{config: &c, dialect: dialects[db.SQLite]}
		p := position{limit: maxPageRows}
		page, err := table.readPage(t.Context(), tx, nil, layout{titleColumn: "short"}, &p)
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, r := range page {
			key, _ := r.key.(string)
			sum += len(key) + len(r.id) + len(r.updated.String) + len(r.access.String)
		}
		if sum > maxPageBytes+2*size {
			t.Errorf("id %s, updated %s, access %s: the page has %d rows of %d bytes", c.IDColumn, c.UpdatedColumn, c.AccessColumn, len(page), sum)
		}
	}
}

// TestLongColumns checks that a row whose times or readers are longer than their bounds fails, and keeps its readers out.
func TestLongColumns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "docs.db")
	d, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(), `CREATE TABLE a AS SELECT 1 AS id, 'x' AS body, 't' AS changed, hex(zeroblob(20000)) AS readers
		UNION SELECT 2, 'x', hex(zeroblob(200)), 'staff'`); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	s, err := New(Options{
		Config:   &config.SQLSource{Tables: []*config.Table{{Table: "a", Columns: []string{"body"}, IDColumn: "id", UpdatedColumn: "changed", AccessColumn: "readers"}}},
		Database: db.ExternalDB{Driver: db.SQLite, Database: path, MaxConns: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	want := []string{"the value of the column readers has more than 16384 characters", "the value of the column changed has more than 200 characters; name a column with a time or a version"}
	var got []string
	for item, err := range s.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Access.IsOpen() {
			t.Errorf("%s is open to all", item.ID)
		}
		_, err := item.Open(t.Context())
		got = append(got, err.Error())
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q", got)
	}
}

// TestPageMemory checks that the memory of what is read of a table is reserved, of one page at a time, and released; and that a
// listing fails whose page takes more than the app may have.
func TestPageMemory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "docs.db")
	d, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	const rows, size = 40, 1 << 20
	if _, err := d.ExecContext(t.Context(), `CREATE TABLE a AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		SELECT i AS id, hex(zeroblob($2)) AS body, NULL AS changed FROM n`, rows, size/2); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	for name, tt := range map[string]struct {
		updated     string
		least, most int64 // bytes that are reserved
	}{
		"the texts of a page":                 {"", maxPageBytes - 2*size, maxPageBytes + 2*size},
		"one text, since its time is missing": {"changed", size, 2 * size},
	} {
		read := func(pool int64) (listed int, most, left int64, err error) {
			s, err := New(Options{
				Config:   &config.SQLSource{Tables: []*config.Table{{Table: "a", Columns: []string{"body"}, IDColumn: "id", UpdatedColumn: tt.updated}}},
				Database: db.ExternalDB{Driver: db.SQLite, Database: path, MaxConns: 1},
				Memory:   capacity.NewPool(pool, func(n int64) { left, most = n, max(most, n) }).NewReservation("acme", 1),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			for _, err := range s.List(t.Context()) {
				if err != nil {
					return listed, most, left, err
				}
				listed++
			}
			return listed, most, left, nil
		}
		listed, most, left, err := read(1 << 30)
		if listed != rows || err != nil || most < tt.least || most > tt.most || left != 0 {
			t.Errorf("%s: %d rows are listed, %v, %d bytes were reserved at most, %d remain", name, listed, err, most, left)
		}
		_, _, left, err = read(size)
		if err == nil || !strings.Contains(err.Error(), "the table a cannot be read: it takes more memory than an app may have") || left != 0 {
			t.Errorf("%s: %v, %d bytes remain", name, err, left)
		}
	}
}
