package runtime

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"stoa/migrations"
	"stoa/tenancy/db"
)

// expectedSchemaObjects is the set of schema objects that a tenant's SQLite file may have: those that migrateTables of
// this or an earlier version creates. It is computed once, by running the migrations step by step in memory.
var expectedSchemaObjects = sync.OnceValues(func() (map[db.SchemaObject]bool, error) {
	ctx := context.Background()
	steps, err := migrations.SessionMigrations()
	if err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, "sqlite://:memory:", db.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	objects := map[db.SchemaObject]bool{}
	err = d.Platform().RunTx(ctx, func(tx *db.Tx) error {
		// The objects after each step are collected, since a file of an earlier version has those of its step.
		for _, step := range append([]string{createVersionTable}, steps...) {
			if _, err := tx.Exec(ctx, step); err != nil {
				return err
			}
			err := tx.Query(ctx, func(r db.Row) error {
				var o db.SchemaObject
				if err := r.Scan(&o.Type, &o.Name, &o.SQL); err != nil {
					return err
				}
				o.SQL = normalizeSQL(o.SQL)
				objects[o] = true
				return nil
			}, "SELECT type, name, COALESCE(sql, '') FROM sqlite_schema")
			if err != nil {
				return err
			}
		}
		return nil
	})
	return objects, err
})

// checkSchemaObject returns an error for a schema object that migrateTables has not created. SQLite would execute a
// trigger, a view, a check constraint or a generated column of the file with this server's rights.
func checkSchemaObject(o db.SchemaObject) error {
	objects, err := expectedSchemaObjects()
	if err != nil {
		return err
	}
	o.SQL = normalizeSQL(o.SQL)
	if objects[o] {
		return nil
	}
	return fmt.Errorf("it holds the %s %.80q, which Stoa did not create: name a file that only Stoa writes, or one that does not exist yet", o.Type, o.Name)
}

// normalizeSQL returns a statement without comments and with single spaces. It is right only for statements without
// quoted text, as ours are.
func normalizeSQL(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		words = append(words, strings.Fields(line)...)
	}
	return strings.Join(words, " ")
}
