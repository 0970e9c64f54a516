package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/tenancy/db"
	"stoa/tenancy/db/batchsize"
)

// tenantTable is a table whose rows belong to tenants.
type tenantTable struct {
	// name is the table's name, quoted for SQL.
	name string
	// rowKey is the SQL expression that identifies a row, by which a statement deletes a bounded number.
	rowKey string
}

// findTenantTables returns all tables with a column tenant except the table app. It asks the database's catalogue
// instead of using a list, so that a new table cannot be forgotten when an app is deleted.
func findTenantTables(ctx context.Context, h *db.Handle) ([]tenantTable, error) {
	find := findSQLiteTables
	if h.Engine() == db.Postgres {
		find = findPostgresTables
	}
	tables, err := find(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("find the tables of tenants: %w", err)
	}
	return slices.DeleteFunc(tables, func(t tenantTable) bool { return t.name == "app" || t.name == `"app"` }), nil
}

// findPostgresTables reads PostgreSQL's catalogue. Partitions are left out, because statements on their parent cover
// them.
func findPostgresTables(ctx context.Context, h *db.Handle) (tables []tenantTable, err error) {
	var b db.Batch
	b.Query(func(row db.Row) error {
		t := tenantTable{rowKey: "ctid"}
		err := row.Scan(&t.name)
		tables = append(tables, t)
		return err
	}, `SELECT CAST(CAST(c.oid AS regclass) AS TEXT) FROM pg_class c
		JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped
		WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_table_is_visible(c.oid)`)
	err = h.Do(ctx, &b)
	return tables, err
}

// findSQLiteTables reads SQLite's schema. Rows are identified by rowid, in a table WITHOUT ROWID by the primary key.
func findSQLiteTables(ctx context.Context, h *db.Handle) (tables []tenantTable, err error) {
	keys, bare := map[string][]string{}, map[string]bool{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		var table, column string
		var withoutRowID, key int
		if err := row.Scan(&table, &column, &withoutRowID, &key); err != nil {
			return err
		}
		if bare[table] = withoutRowID == 1; key > 0 {
			keys[table] = append(keys[table], quoteIdentifier(column))
		}
		return nil
	}, `SELECT t.name, c.name, t.wr, c.pk FROM pragma_table_list t JOIN pragma_table_info(t.name) c
		WHERE t.schema = 'main' AND t.type IN ('table', 'virtual')
			AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) x WHERE x.name = 'tenant')`)
	if err := h.Do(ctx, &b); err != nil {
		return nil, err
	}
	for table, withoutRowID := range bare {
		t := tenantTable{quoteIdentifier(table), "rowid"}
		if withoutRowID {
			t.rowKey = strings.Join(keys[table], ", ")
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// quoteIdentifier quotes a name for SQL.
func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// deleteSQL returns the statement that deletes up to $2 rows of the tenant $1. It is the only SQL of this
// package that contains a name from the catalogue.
func (t tenantTable) deleteSQL(e db.Engine) string {
	if e == db.Postgres {
		return fmt.Sprintf(`DELETE FROM %s WHERE tenant = $1 AND %s = ANY (ARRAY(SELECT %[2]s FROM %[1]s WHERE tenant = $1 LIMIT $2))`, t.name, t.rowKey)
	}
	return fmt.Sprintf(`DELETE FROM %s WHERE tenant = $1 AND (%s) IN (SELECT %[2]s FROM %[1]s WHERE tenant = $1 LIMIT $2)`, t.name, t.rowKey)
}

// deleteTenantRows deletes a tenant's rows from every tenant table and returns their number.
func deleteTenantRows(ctx context.Context, h *db.Handle, id db.ID) (total int64, err error) {
	tables, err := findTenantTables(ctx, h)
	if err != nil {
		return 0, err
	}
	for _, t := range tables {
		size := int64(batchsize.First)
		for {
			n, began := int64(0), time.Now()
			var b db.Batch
			b.Exec(&n, t.deleteSQL(h.Engine()), string(id), size)
			if err := h.Do(ctx, &b); err != nil {
				return total, fmt.Errorf("delete rows of %s: %w", t.name, err)
			}
			total += n
			if n < size {
				break
			}
			size = batchsize.Next(size, time.Since(began))
		}
	}
	return total, nil
}
