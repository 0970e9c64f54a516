package db_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// TestRowBytes reads texts and binary values of several rows into the same variables. A null is an error.
func TestRowBytes(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		binary := `CAST('abc' AS BLOB)`
		if d.Engine() == db.Postgres {
			binary = `'abc'::bytea`
		}
		var got []string
		var text, raw db.RowBytes
		var b db.Batch
		b.Query(func(r db.Row) error {
			err := r.Scan(&text, &raw)
			got = append(got, string(text)+" "+string(raw))
			return err
		}, `SELECT 'one', `+binary+` UNION ALL SELECT 'sixteen', `+binary+` UNION ALL SELECT '', `+binary)
		if err := d.Tenant("acme").Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"one abc", "sixteen abc", " abc"}, got); diff != "" {
			t.Error(diff)
		}
		var null db.Batch
		null.Query(func(r db.Row) error { return r.Scan(&raw) }, `SELECT NULL`)
		if err := d.Tenant("acme").Do(t.Context(), &null); err == nil && raw != nil {
			t.Errorf("a null was read as %q", raw)
		}
	})
}
