package corpus_test

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"stoa/agentsvc/document/corpus"
	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// documentsMigration is the migration that makes the tables of documents.
const documentsMigration = 3

// TestUpgrade takes a database with searchable documents back to each schema that has documents, and migrates it again: all
// documents are found by words and by vectors, the sums over them are right, and others are indexed, replaced and deleted.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		latest, err := migrations.Latest(string(d.Engine()))
		if err != nil {
			t.Fatal(err)
		}
		f := newFixture(t, d, "acme", corpus.Limits{})
		f.put(t, "a", largeText("valve", 150))
		f.put(t, "b", "pump")
		f.indexPending(t)
		for version := latest - 1; version >= documentsMigration; version-- {
			what := fmt.Sprint("from version ", version, ": ")
			migrateDown(t, d, latest, version)
			if err := d.ChangeSchema(t.Context(), "", func(s *sql.DB) error { return migrations.Up(t.Context(), string(d.Engine()), s) }); err != nil {
				t.Fatal(what, err)
			}
			checkDiff(t, what+"found by words", []string{"pump"}, f.findText(t, manual, "pump"))
			found, err := f.Search.MatchVectors(t.Context(), manual, model, letters("valve line"), 1000)
			if err != nil {
				t.Fatal(what, err)
			}
			checkDiff(t, what+"found by vectors", 151, len(found))
			checkDiff(t, what+"chunks", int64(151), must(f.Documents.StoreStatus(t.Context(), "manual")).Chunks)
			checkTotals(t, d)

			f.put(t, "b", "lamp")
			f.put(t, "c", "pump")
			f.indexPending(t)
			checkDiff(t, what+"replaced", []string{"lamp"}, f.findText(t, manual, "lamp"))
			if err := f.Documents.Delete(t.Context(), "manual", "b", "", everyone); err != nil {
				t.Fatal(what, err)
			}
			checkDiff(t, what+"deleted", []string{}, f.findText(t, manual, "lamp"))
			if err := f.Documents.Delete(t.Context(), "manual", "c", "", everyone); err != nil {
				t.Fatal(what, err)
			}
			f.put(t, "b", "pump")
			f.indexPending(t)
			checkTotals(t, d)
		}
	})
}

// migrateDown takes the schema of a database from one version back to an earlier one.
func migrateDown(t *testing.T, d *db.DB, from, to uint) {
	t.Helper()
	for version := from; version > to; version-- {
		files, err := filepath.Glob(fmt.Sprintf("../../../migrations/%s/%04d_*.down.sql", d.Engine(), version))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		down, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		err = d.ChangeSchema(t.Context(), "", func(s *sql.DB) error {
			_, err := s.ExecContext(t.Context(), string(down)+fmt.Sprintf("\n;UPDATE stoa_migrations SET version = %d;", version-1))
			return err
		})
		if err != nil {
			t.Fatal(files[0], err)
		}
	}
}
