package transfer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// leftOut are the tables with rows about an app that a file does not have, each with the reason. Every other table that
// the catalogue shows to have a column with an app's id is in a file.
var leftOut = map[string]string{
	"admin_call":       "answers of this installation's admin API, kept for repetitions under an Idempotency-Key",
	"audit_flaw":       "found again by the inspection of the chain",
	"audit_head":       "sealed by this installation's master key; the importing one seals the end of the chain itself",
	"budget_gone":      "belongs to the budgets of the platform",
	"document_total":   "triggers count the documents when they are imported",
	"export_cursor":    "state of this installation's exports of usage",
	"index_app":        "derived from the configuration when the app is read",
	"rate_count":       "counts of windows that have not ended; the importing installation counts anew",
	"reservation":      "of calls under way, and an app is exported when it has none",
	"reservation_line": "of calls under way, and an app is exported when it has none",
	"schedule_app":     "derived from the configuration when the app is read",
	"usage_exported":   "state of this installation's exports of usage",
	"vector_index":     "derived from the vectors, as are the tables of derivedPrefix",
}

// derivedPrefix begins the names of the tables of approximate indexes over vectors, which are made at run time.
const derivedPrefix = "chunk_hnsw_"

// sealedColumns are the columns with a key that a master key wraps, by table. A table in a file with a column master_key
// must be listed.
var sealedColumns = map[string]string{"app": "data_key", "receiver": "value", "credential": "value"}

const masterKeyColumn = "master_key"

// The types of columns, as the schema names them.
const (
	kindText    = "TEXT"
	kindNumber  = "BIGINT"
	kindBoolean = "BOOLEAN"
	kindBytes   = "BYTEA"
)

// column is a column of a table.
type column struct {
	name string
	// kind is the type as one of the kinds, or as the database names it if it is none.
	kind     string
	nullable bool
}

// table is a table with rows about apps.
type table struct {
	name string
	// owner is the column with the app's id.
	owner string
	// columns are the others, without generated ones.
	columns []column
}

// ownerColumns are the names of columns with an app's id. The first that a table has counts: audit has app_id, and the
// app's name in app.
var ownerColumns = []string{"tenant", "app_id", "app"}

// catalog is what the database's schema says about apps.
type catalog struct {
	// schema is the version of the schema, the number of the last migration.
	schema uint
	// engine is that of the database.
	engine db.Engine
	// all are all tables with a column of ownerColumns, exported those that are not leftOut: table app first, the audit
	// trail last, since it is chained while a lock is held.
	all, exported []table
}

// readCatalog reads the catalogue of the database in tx.
func readCatalog(ctx context.Context, tx *db.Tx, engine db.Engine) (*catalog, error) {
	query := sqliteColumns
	if engine == db.Postgres {
		query = postgresColumns
	}
	columns := map[string][]column{}
	err := tx.Query(ctx, func(row db.Row) error {
		var name string
		var c column
		if err := row.Scan(&name, &c.name, &c.kind, &c.nullable); err != nil {
			return err
		}
		// The schema of SQLite names bytes BLOB. INTEGER is the row id of a table with a full-text index.
		if c.kind = strings.ToUpper(c.kind); c.kind == "BLOB" {
			c.kind = kindBytes
		}
		if c.kind != "INTEGER" {
			columns[name] = append(columns[name], c)
		}
		return nil
	}, query)
	if err != nil {
		return nil, fmt.Errorf("read the catalogue: %w", err)
	}
	c := &catalog{engine: engine}
	if err := tx.Query(ctx, func(row db.Row) error { return row.Scan(&c.schema) }, `SELECT version FROM stoa_migrations`); err != nil {
		return nil, fmt.Errorf("read the version of the schema: %w", err)
	}
	for name, list := range columns {
		if t, ok := newTable(name, list); ok {
			c.all = append(c.all, t)
		}
	}
	slices.SortFunc(c.all, func(a, b table) int { return strings.Compare(a.sortKey(), b.sortKey()) })
	for _, t := range c.all {
		if leftOut[t.name] != "" || strings.HasPrefix(t.name, derivedPrefix) {
			continue
		}
		if err := t.check(); err != nil {
			return nil, err
		}
		c.exported = append(c.exported, t)
	}
	return c, nil
}

const postgresColumns = `SELECT CAST(c.relname AS TEXT), CAST(a.attname AS TEXT), format_type(a.atttypid, a.atttypmod), NOT a.attnotnull FROM pg_class c
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
	WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_table_is_visible(c.oid) AND c.relnamespace <> 'pg_catalog'::regnamespace
	ORDER BY c.relname, a.attnum`

const sqliteColumns = `SELECT t.name, c.name, c.type, c."notnull" = 0 AND c.pk = 0 FROM pragma_table_list t JOIN pragma_table_info(t.name) c
	WHERE t.schema = 'main' AND t.type = 'table' ORDER BY t.name, c.cid`

// newTable returns a table if one of its columns has the id of an app.
func newTable(name string, columns []column) (table, bool) {
	for _, owner := range ownerColumns {
		isOwner := func(c column) bool { return c.name == owner }
		if slices.ContainsFunc(columns, isOwner) {
			return table{name, owner, slices.DeleteFunc(columns, isOwner)}, true
		}
	}
	return table{}, false
}

// sortKey orders the tables of a file.
func (t *table) sortKey() string {
	switch t.name {
	case appTable:
		return "0"
	case auditTable:
		return "2"
	}
	return "1" + t.name
}

// The tables that are treated in a way of their own.
const (
	appTable      = "app"
	auditTable    = "audit"
	invoiceTable  = "invoice"
	secretTable   = "app_secret"
	revisionTable = "app_revision"
)

// check returns an error if this version cannot export the table: a newer schema has it, or this package was not adapted
// to a change of the schema, which TestTables shows.
func (t *table) check() error {
	sealed := false
	for _, c := range t.columns {
		sealed = sealed || c.name == masterKeyColumn
		switch c.kind {
		case kindText, kindNumber, kindBoolean, kindBytes:
		default:
			return agentsvc.NewError(agentsvc.CodeUnavailable, "this version cannot export apps from the database's schema: column %s of table %s has the type %s", c.name, t.name, c.kind)
		}
	}
	if sealed != (sealedColumns[t.name] != "") {
		return agentsvc.NewError(agentsvc.CodeUnavailable, "this version cannot export apps from the database's schema: table %s has a master key that it does not know", t.name)
	}
	return nil
}

// find returns the exported table of that name, nil if there is none.
func (c *catalog) find(name string) *table {
	if i := slices.IndexFunc(c.exported, func(t table) bool { return t.name == name }); i >= 0 {
		return &c.exported[i]
	}
	return nil
}

// index returns the position of a column, -1 if there is none.
func (t *table) index(name string) int {
	return slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })
}

// selectSQL returns the statement that reads the rows of the app $1. With insertSQL it is the only SQL of this package
// with names of the catalogue.
func (t *table) selectSQL() string {
	return "SELECT " + quote(t.owner) + ", " + t.columnList() + " FROM " + quote(t.name) + " WHERE " + quote(t.owner) + " = $1"
}

// insertSQL returns the statement that inserts rows, with the app's id first in each.
func (t *table) insertSQL(rows int) string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + quote(t.name) + " (" + quote(t.owner) + ", " + t.columnList() + ") VALUES ")
	n := 0
	for row := range rows {
		if row > 0 {
			b.WriteString(", ")
		}
		for i := range len(t.columns) + 1 {
			n++
			fmt.Fprintf(&b, "%c$%d", "(,"[min(i, 1)], n)
		}
		b.WriteByte(')')
	}
	return b.String()
}

func (t *table) columnList() string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = quote(c.name)
	}
	return strings.Join(names, ", ")
}

// quote quotes a name for SQL.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
