package db_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"stoa/tenancy/db"
)

// TestErase deletes rows that were written in many orders and sizes and more than once, so that pages were split,
// merged, chained and freed: no byte of them remains in the file or its auxiliary files.
func TestErase(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "erase.db")
	d, err := db.Open(t.Context(), "sqlite://"+file, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	do := func(sql string, args ...any) {
		t.Helper()
		var b db.Batch
		b.Exec(nil, sql, args...)
		if err := d.Platform().Do(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	do(`CREATE TABLE x (tenant TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (tenant, id)) WITHOUT ROWID`)
	do(`CREATE TABLE y (n INTEGER PRIMARY KEY, tenant TEXT NOT NULL, body TEXT NOT NULL)`)
	do(`CREATE INDEX y_body ON y (body)`)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the test is the same each time
	body := func(tenant string) string {
		return strings.Repeat("canary-"+tenant+" ", 1+random.IntN(1+random.IntN(600)))
	}
	for i := range 1500 {
		tenant := []string{"gone", "stays"}[random.IntN(2)]
		id := fmt.Sprintf("canary-%s %d", tenant, random.IntN(500))
		do(`INSERT INTO x (tenant, id, body) VALUES ($1, $2, $3) ON CONFLICT (tenant, id) DO UPDATE SET body = excluded.body`, tenant, id, body(tenant))
		do(`INSERT INTO y (n, tenant, body) VALUES ($1, $2, $3)`, random.IntN(1<<30), tenant, body(tenant))
		if i%7 == 0 {
			do(`DELETE FROM y WHERE n IN (SELECT n FROM y ORDER BY n LIMIT 3)`)
		}
	}
	for _, table := range []string{"x", "y"} {
		do(`DELETE FROM ` + table + ` WHERE tenant = 'gone'`)
	}
	if err := d.EraseDeleted(t.Context()); err != nil {
		t.Fatal(err)
	}
	stays := 0
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(file + suffix)
		if err != nil {
			t.Fatal(err)
		}
		stays += bytes.Count(data, []byte("canary-stays"))
		if n := bytes.Count(data, []byte("canary-gone")); n > 0 {
			t.Errorf("%d canaries are left in erase.db%s", n, suffix)
		}
	}
	if stays == 0 {
		t.Error("nothing is left of what was not deleted: the file was not searched")
	}
}
