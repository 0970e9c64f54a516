package db_test

import (
	"strings"
	"sync"
	"testing"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestFull writes to a full disk: only the writes that do not fit fail, also in a group, and nothing of them remains.
func TestFull(t *testing.T) {
	t.Parallel()
	d := dbtest.NewSQLite(t)
	var b db.Batch
	b.Exec(nil, "CREATE TABLE heap (n BIGINT, x TEXT)")
	b.Query(func(db.Row) error { return nil }, "PRAGMA max_page_count = 300")
	if err := d.Platform().Do(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 40)
	for i := range errs {
		wg.Go(func() {
			size := 10
			if i%4 == 0 {
				size = 2 << 20
			}
			var b db.Batch
			b.Exec(nil, "INSERT INTO heap (n, x) VALUES ($1, $2)", i, strings.Repeat("x", size))
			errs[i] = d.Tenant("acme").Write(t.Context(), &b)
		})
	}
	wg.Wait()
	want := 0
	for i, err := range errs {
		if full := i%4 == 0; db.IsFull(err) != full || !full && err != nil {
			t.Errorf("write %d: %v", i, err)
		} else if !full {
			want++
		}
	}
	got := 0
	var count db.Batch
	count.Query(func(r db.Row) error { return r.Scan(&got) }, "SELECT COUNT(*) FROM heap")
	if err := d.Platform().Do(t.Context(), &count); err != nil || got != want {
		t.Errorf("%d rows, %v, want %d", got, err, want)
	}
}
