// Package batchsize decides how many rows each of several transactions changes that together change many, so that none of them holds
// locks for long: on SQLite nothing else is written meanwhile.
package batchsize

import "time"

// First is the number of rows of the first transaction.
const First = 100

const (
	most  = 1000
	aimed = 50 * time.Millisecond
)

// Next returns how many rows the next transaction changes after one of size rows that took so long. A row of a text index costs a
// thousand times as much as one of a table without indexes.
func Next(size int64, took time.Duration) int64 {
	switch {
	case took > aimed:
		return max(1, size/2)
	case took < aimed/4:
		return min(2*size, most)
	}
	return size
}
