package store

import "context"

// sizedTable is a table, and the size of a row in SQL.
type sizedTable struct{ table, size string }

// sizedTables are the tables in which a tenant keeps what is of a size worth counting, and the size of a row.
var sizedTables = []sizedTable{
	{"event", "octet_length(body)"},
	{"session_turn", "octet_length(body)"},
	{"session_summary", "octet_length(body)"},
	{"memory", "octet_length(text) + octet_length(words) + COALESCE(octet_length(vector), 0)"},
	{"credential", "octet_length(value)"},
	{"tool_pin", "octet_length(body) + octet_length(drift_body)"},
}

// StoredBytes returns how many bytes the tenant keeps: messages, artifacts, files and whatever else is on the logs of its tasks,
// conversations and their summaries, memories, credentials and descriptions of tools. Keys, indexes and what the engine
// adds are not counted. It reads all of the tenant's rows.
func (s *Store) StoredBytes(ctx context.Context) (total int64, err error) {
	return s.sumSizes(ctx, sizedTables, 0)
}
