package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"stoa/tenancy/db"
)

// deleteBatchSize bounds the rows that one statement of a deletion removes.
const deleteBatchSize = 1000

// tenantTable is a table whose rows belong to tenants.
type tenantTable struct {
	name   string // quoted
	rowKey string // what tells one row from another
}

// findTenantTables asks the database itself which tables hold tenants' rows, those with a column tenant: no list of ours
// could forget one. The table of the apps is not among them.
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

// findSQLiteTables tells rows apart by rowid, where a table has none by its primary key.
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

func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// deleteSQL is the statement that deletes some of a tenant's rows.
func (t tenantTable) deleteSQL(e db.Engine) string {
	if e == db.Postgres {
		return fmt.Sprintf(`DELETE FROM %s WHERE tenant = $1 AND %s = ANY (ARRAY(SELECT %[2]s FROM %[1]s WHERE tenant = $1 LIMIT %[3]d))`,
			t.name, t.rowKey, deleteBatchSize)
	}
	return fmt.Sprintf(`DELETE FROM %s WHERE tenant = $1 AND (%s) IN (SELECT %[2]s FROM %[1]s WHERE tenant = $1 LIMIT %[3]d)`,
		t.name, t.rowKey, deleteBatchSize)
}

// deleteTenantRows deletes a tenant's rows from every table and returns how many there were.
func deleteTenantRows(ctx context.Context, h *db.Handle, id db.ID) (total int64, err error) {
	tables, err := findTenantTables(ctx, h)
	if err != nil {
		return 0, err
	}
	for _, t := range tables {
		for n := int64(deleteBatchSize); n == deleteBatchSize; total += n {
			var b db.Batch
			b.Exec(&n, t.deleteSQL(h.Engine()), string(id))
			if err := h.Do(ctx, &b); err != nil {
				return total, fmt.Errorf("delete rows of %s: %w", t.name, err)
			}
		}
	}
	return total, nil
}
