package quota

import (
	"context"
	"fmt"
	"strings"

	"stoa/tenancy/db"
)

// sizedTable is a table and the SQL expression of a row's size in bytes.
type sizedTable struct{ table, size string }

// sizedTables are the tables with texts of tenants.
var sizedTables = []sizedTable{
	{"event", "octet_length(body)"},
	{"session_turn", "octet_length(body)"},
	{"session_summary", "octet_length(body)"},
	{"memory", "octet_length(text) + octet_length(words) + COALESCE(octet_length(vector), 0)"},
	{"credential", "octet_length(value)"},
	{"document", "octet_length(title) + octet_length(metadata) + octet_length(access)"},
	{"document_body", "octet_length(body)"},
	{"chunk", "octet_length(text) + octet_length(words)"},
	{"chunk_vector", "octet_length(vector)"},
	{"tool_pin", "octet_length(body) + octet_length(drift_body)"},
}

// StoredBytes returns the bytes of a tenant's texts in d and files: the logs of its tasks, sessions and their summaries,
// memories, credentials, documents with their chunks and vectors, and tool definitions. Keys, indexes and the engine's overhead are not included. It reads all
// of the tenant's rows.
func StoredBytes(ctx context.Context, d *db.DB, tenant db.ID) (total int64, err error) {
	return sumSizes(ctx, d.Tenant(tenant), tenant, sizedTables, 0)
}

// ListTenantsBySize returns the tenants with events or session turns in d, those with the most bytes first. It reads
// all rows of both tables.
func ListTenantsBySize(ctx context.Context, d *db.DB) ([]db.ID, error) {
	var ids []db.ID
	var b db.Batch
	b.Query(func(r db.Row) error {
		var id string
		var size int64
		err := r.Scan(&id, &size)
		ids = append(ids, db.ID(id))
		return err
	}, `SELECT tenant, CAST(SUM(n) AS BIGINT) AS size FROM (SELECT tenant, octet_length(body) AS n FROM event
		UNION ALL SELECT tenant, octet_length(body) FROM session_turn) AS said GROUP BY tenant ORDER BY size DESC`)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("estimate what tenants store: %w", err)
	}
	return ids, nil
}

// rowOverhead is the assumed size of a row without its texts, in bytes: keys, indexes and the engine's header.
const rowOverhead = 256

// quotaTables are the tables that count for a quota, each with the SQL of a row's size.
var quotaTables = append([]sizedTable{
	{"task", "0"}, {"run", "0"}, {"sent", "0"}, {"receiver", "octet_length(value)"},
}, sizedTables...)

// sumSizes returns the sum of the sizes of the tenant's rows in tables, plus row for each of them. octet_length does
// not read long texts, but every row is read.
func sumSizes(ctx context.Context, h *db.Handle, tenant db.ID, tables []sizedTable, row int64) (total int64, err error) {
	parts := make([]string, len(tables))
	for i, k := range tables {
		parts[i] = `SELECT COALESCE(SUM(` + k.size + `), 0) + COUNT(*) * CAST($2 AS BIGINT) AS n FROM ` + k.table + ` WHERE tenant = $1`
	}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&total) }, `SELECT CAST(SUM(n) AS BIGINT) FROM (`+strings.Join(parts, " UNION ALL ")+`) AS sums`, string(tenant), row)
	if err := h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("add up the bytes that are stored: %w", err)
	}
	return total, nil
}
