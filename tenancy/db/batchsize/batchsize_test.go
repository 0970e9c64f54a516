package batchsize_test

import (
	"testing"
	"time"

	"stoa/tenancy/db/batchsize"
)

// TestNext: a transaction with rows that take 30 ms each changes one of them, and many cheap rows go at once.
func TestNext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		row         time.Duration
		least, most int64
	}{{30 * time.Millisecond, 1, 1}, {time.Millisecond, 13, 50}, {time.Microsecond, 1000, 1000}} {
		size := int64(batchsize.First)
		for range 20 {
			size = batchsize.Next(size, time.Duration(size)*tt.row)
		}
		if size < tt.least || size > tt.most {
			t.Errorf("%d rows of %v", size, tt.row)
		}
	}
}
