package store

// What the tests need to know of the inside.
var (
	FirstID    = firstID
	TaskTables = taskTables
)
