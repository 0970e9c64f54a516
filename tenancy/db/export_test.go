package db

// Summarize is for the tests.
var Summarize = summarize

// Writes returns how many writes are queued, and how many groups are put together or on their way.
func (d *DB) Writes() (queued, writers int) {
	d.group.mu.Lock()
	defer d.group.mu.Unlock()
	return d.group.n, d.group.writers
}

// Pipeline returns the statements that go to PostgreSQL for batches of one tenant in one group, and how many rows each inserts.
func Pipeline(batches ...*Batch) (sql []string, rows []int) {
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = &call{batch: b}
	}
	steps, _ := pipeline("enter", calls)
	for _, s := range steps {
		sql, rows = append(sql, s.sql), append(rows, len(s.rows))
	}
	return sql, rows
}
