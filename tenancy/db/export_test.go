package db

// Summarize is for the tests.
var Summarize = summarize

// Writes returns how many writes are queued, and how many groups are put together or on their way.
func (d *DB) Writes() (queued, writers int) {
	d.group.mu.Lock()
	defer d.group.mu.Unlock()
	return d.group.n, d.group.writers
}
