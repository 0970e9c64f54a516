package db_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestLargeAndSmall writes groups that are larger than a sendBuffer, and then small ones on the same connections: every
// value is stored as it was sent.
func TestLargeAndSmall(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		const waves, writes = 4, 24
		size := func(wave, i int) int { return 1 + i*i*100*((wave+1)%2) } // up to 53 kB, or one byte each
		for wave := range waves {
			var wg sync.WaitGroup
			for i := range writes {
				wg.Go(func() {
					id := fmt.Sprintf("%d.%02d", wave, i)
					text := strings.Repeat(string(rune('a'+i)), size(wave, i))
					var b db.Batch
					insertTask(&b, "alice", id)
					b.Exec(nil, `UPDATE task SET agent = $2 WHERE tenant = 'alice' AND id = $1`, id, text)
					if err := d.Tenant("alice").Write(context.Background(), &b); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		seen := 0
		var b db.Batch
		b.Query(func(r db.Row) error {
			var id, text string
			if err := r.Scan(&id, &text); err != nil {
				return err
			}
			var wave, i int
			_, err := fmt.Sscanf(id, "%d.%d", &wave, &i)
			if want := strings.Repeat(string(rune('a'+i)), size(wave, i)); text != want {
				t.Errorf("%s has %d bytes that begin with %.10s, want %d of %c", id, len(text), text, len(want), 'a'+i)
			}
			seen++
			return err
		}, `SELECT id, agent FROM task WHERE tenant = 'alice'`)
		if err := d.Tenant("alice").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if seen != waves*writes {
			t.Errorf("%d rows, want %d", seen, waves*writes)
		}
	})
}
