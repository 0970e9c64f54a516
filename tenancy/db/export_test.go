package db

// Summarize is for the tests.
var Summarize = summarize

// Writes returns how many writes are queued, and how many groups are put together or on their way.
func (d *DB) Writes() (queued, writers int) {
	d.group.mu.Lock()
	defer d.group.mu.Unlock()
	return d.group.n, d.group.writers
}

// Pipeline returns the statements that go to PostgreSQL for a group, the i-th batch of which is of the i-th tenant, and how
// many rows each inserts.
func Pipeline(tenants []ID, batches ...*Batch) (sql []string, rows []int) {
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = &call{tenant: tenants[i], batch: b}
	}
	steps, _ := pipeline("enter", calls)
	for _, s := range steps {
		sql, rows = append(sql, s.sql), append(rows, len(s.rows))
	}
	return sql, rows
}
