package sqltable

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"stoa/agentsvc/capacity"
	"stoa/agentsvc/config"
	"stoa/agentsvc/document/source"
	"stoa/tenancy/db"
)

// dialect is how an engine writes what the statements need. Names come from the configuration and are quoted; values are
// parameters.
type dialect struct {
	quote       string // around names; doubled in them
	parameter   string
	text, bytes string // formats of the text of a column, and of its length in bytes
}

var dialects = map[db.Engine]dialect{
	db.Postgres: {`"`, "$1", "CAST(%s AS text)", "COALESCE(octet_length(CAST(%s AS text)), 0)"},
	db.SQLite:   {`"`, "?", "CAST(%s AS TEXT)", "COALESCE(length(CAST(%s AS BLOB)), 0)"},
	db.MySQL:    {"`", "?", "CONVERT(%s USING utf8mb4)", "COALESCE(OCTET_LENGTH(%s), 0)"},
}

// quoteName quotes a name.
func (d dialect) quoteName(name string) string {
	return d.quote + strings.ReplaceAll(name, d.quote, d.quote+d.quote) + d.quote
}

// textOf returns the expression for a column's value as text, whatever its type.
func (d dialect) textOf(column string) string { return fmt.Sprintf(d.text, d.quoteColumn(column)) }

// quoteColumn quotes the name of a column of the table t of a statement. Without t, SQLite would read a name that is no
// column as text, and PostgreSQL would take a name in ORDER BY for one of the results.
func (d dialect) quoteColumn(name string) string { return "t." + d.quoteName(name) }

// table is a table of the configuration.
type table struct {
	config  *config.Table
	dialect dialect
}

// from returns the table as the t of a statement. A dot in its name separates the schema.
func (t *table) from() string {
	parts := strings.Split(t.config.Table, ".")
	for i := range parts {
		parts[i] = t.dialect.quoteName(parts[i])
	}
	return strings.Join(parts, ".") + " AS t"
}

// idColumn returns the quoted name of the id column.
func (t *table) idColumn() string { return t.dialect.quoteColumn(t.config.IDColumn) }

// countWithoutID returns the statement that counts rows without an id, which pagination passes over.
func (t *table) countWithoutID() string {
	return fmt.Sprintf("SELECT count(*) FROM %s WHERE %s IS NULL", t.from(), t.idColumn())
}

// layout is what a listing reads of each row.
type layout struct {
	titleColumn string
	// withText reports that the text is read with the listing, since only the text shows whether a row has changed.
	withText bool
}

// readLayout looks at the columns of the table. It fails if one of them does not exist.
func (t *table) readLayout(ctx context.Context, tx *sql.Tx) (layout, error) {
	columns := append([]string(nil), t.config.Columns...)
	for _, extra := range []string{t.config.IDColumn, t.config.UpdatedColumn, t.config.AccessColumn} {
		if extra != "" {
			columns = append(columns, extra)
		}
	}
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = t.dialect.quoteColumn(c)
	}
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE 1 = 0", strings.Join(quoted, ", "), t.from()))
	if err != nil {
		return layout{}, err
	}
	defer func() { _ = rows.Close() }()
	types, err := rows.ColumnTypes()
	if err != nil {
		return layout{}, err
	}
	l := layout{titleColumn: t.config.Columns[0], withText: t.config.UpdatedColumn == ""}
	for i := range t.config.Columns {
		kind := strings.ToUpper(types[i].DatabaseTypeName())
		if strings.Contains(kind, "CHAR") || strings.Contains(kind, "TEXT") || strings.Contains(kind, "CLOB") {
			l.titleColumn = t.config.Columns[i]
			break
		}
	}
	return l, rows.Err()
}

// row is a listed row.
type row struct {
	// key is the id as the driver returns it, and takes it as a parameter.
	key any
	// id is the id as text.
	id             string
	updated, title sql.NullString
	access         sql.NullString
	size           int64 // of all columns, in bytes
	text           string
}

// memory returns how many bytes the row takes in memory: all that was read of it, whatever the column.
func (r row) memory() int {
	n := len(r.id) + len(r.updated.String) + len(r.title.String) + len(r.access.String) + len(r.text)
	switch key := r.key.(type) {
	case string:
		n += len(key)
	case []byte:
		n += len(key)
	}
	return n
}

// position is where a listing of a table is.
type position struct {
	after any // the last key; nil at the beginning
	// next is the id that the next page must begin with, "" at the beginning: the page before has seen it. If it does not,
	// the database compares two ids as equal, and one of them would be passed over.
	next  string
	limit int
	done  bool
}

// readPage reads the rows after p and moves p. It asks for one row more than the page has. memory reserves what it has read.
func (t *table) readPage(ctx context.Context, tx *sql.Tx, memory *capacity.MemoryReservation, l layout, p *position) ([]row, error) {
	text, args := t.selectPage(l, p)
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var page []row
	size, more := 0, false
	for rows.Next() {
		r, err := t.scanRow(rows, l)
		if err == nil {
			err = memory.ReserveBytes(ctx, int64(r.memory()))
		}
		if err != nil {
			return nil, err
		}
		if len(page) == 0 && p.next != "" && r.id != p.next {
			return nil, t.errNotUnique()
		}
		if len(page) > 0 && page[len(page)-1].id == r.id {
			return nil, t.errNotUnique()
		}
		if len(page) == p.limit || len(page) > 0 && size+r.memory() > maxPageBytes {
			more, p.next = true, r.id
			break
		}
		page, size = append(page, r), size+r.memory()
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	p.done = !more
	if more {
		p.after = page[len(page)-1].key
		// Rows beyond the end of a page are transferred in vain.
		p.limit = min(maxPageRows, max(len(page), 1))
		if size < maxPageBytes/2 {
			p.limit = min(maxPageRows, 2*p.limit)
		}
	}
	return page, nil
}

// errNotUnique is the error for an id column that does not name rows.
func (t *table) errNotUnique() error {
	return source.PermanentErrorf("the column %s of the table %s is not unique: two rows have the same id, or the database compares their ids as equal; its documents stay as they are",
		t.config.IDColumn, t.config.Table)
}

// selectPage returns the statement for a page.
func (t *table) selectPage(l layout, p *position) (string, []any) {
	d, c := t.dialect, t.config
	// A value that is longer than its bound is cut one character behind it, so that newItem sees that it is.
	cut := func(column string, length int) string {
		if column == "" {
			return "NULL"
		}
		return fmt.Sprintf("substr(%s, 1, %d)", d.textOf(column), length)
	}
	parts := []string{
		t.idColumn(), d.textOf(c.IDColumn), cut(c.UpdatedColumn, maxUpdatedLength+1), cut(c.AccessColumn, maxAccessLength+1),
		cut(l.titleColumn, maxTitleLength), t.sizeExpression(),
	}
	if l.withText {
		parts = append(parts, t.textExpressions()...)
	}
	where, args := "", []any(nil)
	if p.after != nil {
		where, args = fmt.Sprintf(" WHERE %s > %s", t.idColumn(), d.parameter), []any{p.after}
	} else {
		where = fmt.Sprintf(" WHERE %s IS NOT NULL", t.idColumn())
	}
	return fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s LIMIT %d", strings.Join(parts, ", "), t.from(), where, t.idColumn(), p.limit+1), args
}

// sizeExpression returns the expression for the bytes of all columns.
func (t *table) sizeExpression() string {
	parts := make([]string, len(t.config.Columns))
	for i, column := range t.config.Columns {
		parts[i] = fmt.Sprintf(t.dialect.bytes, t.dialect.quoteColumn(column))
	}
	return strings.Join(parts, " + ")
}

// textExpressions returns the expressions for the columns' values. A row that is too large has none, so that it is not
// transferred.
func (t *table) textExpressions() []string {
	parts := make([]string, len(t.config.Columns))
	for i, column := range t.config.Columns {
		parts[i] = fmt.Sprintf("CASE WHEN %s <= %d THEN %s END", t.sizeExpression(), maxRowBytes, t.dialect.textOf(column))
	}
	return parts
}

// scanRow reads a row of selectPage.
func (t *table) scanRow(rows *sql.Rows, l layout) (row, error) {
	var r row
	dest := []any{&r.key, &r.id, &r.updated, &r.access, &r.title, &r.size}
	values := make([]sql.NullString, len(t.config.Columns))
	if l.withText {
		for i := range values {
			dest = append(dest, &values[i])
		}
	}
	if err := rows.Scan(dest...); err != nil {
		return row{}, err
	}
	if l.withText {
		r.text = formatRow(t.config.Columns, values)
	}
	return r, nil
}

// readText reads the text of the row with a key.
func (t *table) readText(ctx context.Context, tx *sql.Tx, key any) (string, error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT %s, %s FROM %s WHERE %s = %s LIMIT 2",
		t.sizeExpression(), strings.Join(t.textExpressions(), ", "), t.from(), t.idColumn(), t.dialect.parameter), key)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	found, text := 0, ""
	for rows.Next() {
		if found++; found > 1 {
			return "", t.errNotUnique()
		}
		var size int64
		values := make([]sql.NullString, len(t.config.Columns))
		dest := []any{&size}
		for i := range values {
			dest = append(dest, &values[i])
		}
		if err := rows.Scan(dest...); err != nil {
			return "", err
		}
		if size > maxRowBytes {
			return "", source.PermanentErrorf("the columns of the row have %d bytes, more than %d", size, maxRowBytes)
		}
		text = formatRow(t.config.Columns, values)
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	if found == 0 {
		return "", source.Errorf("the row disappeared while it was read")
	}
	return text, nil
}
