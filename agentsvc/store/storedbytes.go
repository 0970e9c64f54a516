package store

import "context"

// sizedTable is a table and the SQL expression of a row's size in bytes.
type sizedTable struct{ table, size string }

// sizedTables are the tables with texts of tenants.
var sizedTables = []sizedTable{
	{"event", "octet_length(body)"},
	{"session_turn", "octet_length(body)"},
	{"session_summary", "octet_length(body)"},
	{"memory", "octet_length(text) + octet_length(words) + COALESCE(octet_length(vector), 0)"},
	{"credential", "octet_length(value)"},
	{"tool_pin", "octet_length(body) + octet_length(drift_body)"},
}

// StoredBytes returns the bytes of the tenant's texts and files: the logs of its tasks, sessions and their summaries,
// memories, credentials and tool definitions. Keys, indexes and the engine's overhead are not included. It reads all
// of the tenant's rows.
func (s *Store) StoredBytes(ctx context.Context) (total int64, err error) {
	return s.sumSizes(ctx, sizedTables, 0)
}
