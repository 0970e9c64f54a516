package app

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"stoa/migrations"
	"stoa/tenancy/db"
)

// ownSchema is what may lie in a tenant's SQLite file beside rows: what [makeTables] of this version and earlier ones makes, by
// type, name and statement.
var ownSchema = sync.OnceValues(func() (map[db.SchemaObject]bool, error) {
	ctx := context.Background()
	steps, err := migrations.Sessions()
	if err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, "sqlite://:memory:", db.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	objects := map[db.SchemaObject]bool{}
	err = d.Platform().Tx(ctx, func(tx *db.Tx) error {
		for _, step := range append([]string{createVersion}, steps...) {
			if _, err := tx.Exec(ctx, step); err != nil {
				return err
			}
			err := tx.Query(ctx, func(r db.Row) error {
				var o db.SchemaObject
				if err := r.Scan(&o.Type, &o.Name, &o.SQL); err != nil {
					return err
				}
				o.SQL = plainSQL(o.SQL)
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

// allowObject refuses what Stoa has not made in a tenant's SQLite file: a trigger, a view, a check or a generated column would
// be executed by this server.
func allowObject(o db.SchemaObject) error {
	objects, err := ownSchema()
	if err != nil {
		return err
	}
	o.SQL = plainSQL(o.SQL)
	if objects[o] {
		return nil
	}
	return fmt.Errorf("it holds the %s %.80q, which is not as Stoa makes it: name a file that only Stoa writes, or one that does not exist yet", o.Type, o.Name)
}

// plainSQL returns a statement without comments, and with single spaces. No statement of ours has text in quotes.
func plainSQL(text string) string {
	var words []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "--")
		words = append(words, strings.Fields(line)...)
	}
	return strings.Join(words, " ")
}
