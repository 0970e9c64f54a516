package migrations_test

import (
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/migrations"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// differences lists what one engine has otherwise than the other, with the reason.
var differences = map[string]string{
	"column memory.lexemes":    "PostgreSQL matches words in a column",
	"column memory.n":          "SQLite's full-text index names a row by an integer",
	"column memory.scope":      "SQLite's full-text index is restricted to an owner by a word",
	"primary key of memory":    "SQLite's full-text index names a row by an integer",
	"index memory(tenant, id)": "the primary key of PostgreSQL is a unique constraint on SQLite",
	"column chunk.lexemes":     "PostgreSQL matches words in a column",
	"column chunk.n":           "SQLite's full-text index names a row by an integer",
	"column chunk.scope":       "SQLite's full-text index is restricted to a store by a word",
	"primary key of chunk":     "SQLite's full-text index names a row by an integer",
	"index chunk(tenant, store, document, generation, revision, ordinal)": "the primary key of PostgreSQL is a unique constraint on SQLite",
	"deletes of usage":       "usage goes with its app: PostgreSQL lets the platform delete it, SQLite a statement about a deleted app",
	"column session_turn.at": "on SQLite stoa_now is a function of the process, which a default must not need",
}

// catalogue is a schema as a database describes it: what an object is and its name, and how it is defined.
type catalogue map[string]string

// TestEnginesHaveOneSchema compares the catalogues of the two engines: tables, columns with type, nullability and
// default, keys, indexes, constraints, and which tables refuse updates and deletions. A difference has a row in
// differences.
func TestEnginesHaveOneSchema(t *testing.T) {
	t.Parallel()
	postgres, sqlite := readPostgres(t, dbtest.NewPostgres(t)), readSQLite(t, dbtest.NewSQLite(t))
	if len(postgres) < 400 {
		t.Fatalf("the catalogue of PostgreSQL has %d objects: it was not read", len(postgres))
	}
	objects := maps.Clone(postgres)
	maps.Copy(objects, sqlite)
	for _, object := range slices.Sorted(maps.Keys(objects)) {
		reason, ok := differences[object]
		switch same := postgres[object] == sqlite[object]; {
		case !same && !ok:
			t.Errorf("%s: PostgreSQL has %q, SQLite %q", object, postgres[object], sqlite[object])
		case same && ok:
			t.Errorf("%s is the same on both engines: remove it from differences (%s)", object, reason)
		}
	}
	for object := range differences {
		if _, ok := objects[object]; !ok {
			t.Errorf("no engine has %s: remove it from differences", object)
		}
	}
}

// TestDownAndUp removes the schema and creates it again: nothing of it is left in between, and it is the same afterwards.
func TestDownAndUp(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		engine := string(d.Engine())
		before := dumpSchema(t, d)
		changeSchema(t, d, func(s *sql.DB) error { return migrations.Down(engine, s) })
		if left := dumpSchema(t, d); len(left) > 0 {
			t.Errorf("after down there is still\n%s", strings.Join(left, "\n"))
		}
		changeSchema(t, d, func(s *sql.DB) error { return migrations.Up(t.Context(), engine, s) })
		if diff := cmp.Diff(before, dumpSchema(t, d)); diff != "" {
			t.Errorf("after down and up the schema is another (-before +after)\n%s", diff)
		}
	})
}

// TestNewerSchema checks on which schemas of newer versions a program serves: on those that only add, and on no others.
func TestNewerSchema(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sql string
		want      string // part of the obstacle
	}{
		{"only adds", "", ""},
		{"declares that this program works", "CREATE VIEW stoa_oldest AS SELECT 1 AS migration", ""},
		{"removed what this program needs", "CREATE VIEW stoa_oldest AS SELECT 98 AS migration", "run a version that knows migration 98"},
		{"before the first release", "DROP TABLE jwks", "before the first release"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
				engine := string(d.Engine())
				changeSchema(t, d, func(s *sql.DB) error {
					_, err := s.ExecContext(t.Context(), "UPDATE stoa_migrations SET version = 99")
					if err == nil && tt.sql != "" {
						_, err = s.ExecContext(t.Context(), tt.sql)
					}
					return err
				})
				changeSchema(t, d, func(s *sql.DB) error {
					status, err := migrations.ReadStatus(t.Context(), engine, s)
					if err != nil {
						return err
					}
					obstacle := status.Obstacle()
					if status.IsCurrent() != (tt.want == "") || (obstacle == "") != (tt.want == "") || !strings.Contains(obstacle, tt.want) {
						t.Errorf("the program may serve: %t; the obstacle is %q, want one with %q", status.IsCurrent(), obstacle, tt.want)
					}
					if err := migrations.Up(t.Context(), engine, s); (err == nil) != (tt.want == "") {
						t.Errorf("a migration returns %v", err)
					}
					return nil
				})
			})
		})
	}
}

// TestProtectedTables checks that the list of protected tables is that of a migrated database, on each of which row-level
// security is forced.
func TestProtectedTables(t *testing.T) {
	t.Parallel()
	var forced []string
	readRows(t, dbtest.NewPostgres(t), `SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'stoa_migrations'
		AND relrowsecurity AND relforcerowsecurity ORDER BY relname COLLATE "C"`, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		forced = append(forced, name)
		return err
	})
	if diff := cmp.Diff(forced, migrations.ProtectedTables()); diff != "" {
		t.Errorf("(-database +list):\n%s", diff)
	}
}

// dumpSchema returns a line for every object of the schema except golang-migrate's table.
func dumpSchema(t *testing.T, d *db.DB) (lines []string) {
	t.Helper()
	query := `SELECT type || ' ' || name || ' ' || COALESCE(sql, '') FROM sqlite_schema WHERE tbl_name <> 'stoa_migrations' ORDER BY type, name`
	if d.Engine() == db.Postgres {
		query = `SELECT format('column %s.%s %s %s %s', c.oid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_get_expr(e.adbin, e.adrelid))
				FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef e ON e.adrelid = c.oid AND e.adnum = a.attnum
				WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND c.relname <> 'stoa_migrations'
			UNION ALL SELECT format('table %s %s %s %s %s', oid::regclass, relrowsecurity, relforcerowsecurity, reloptions, array(SELECT unnest(relacl)::text ORDER BY 1))
				FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'stoa_migrations'
			UNION ALL SELECT format('index %s', indexdef) FROM pg_indexes WHERE schemaname = 'public' AND tablename <> 'stoa_migrations'
			UNION ALL SELECT format('policy %s', p) FROM pg_policies p WHERE schemaname = 'public'
			UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
				WHERE connamespace = 'public'::regnamespace AND conrelid <> 'stoa_migrations'::regclass
			UNION ALL SELECT format('function %s', pg_get_functiondef(oid)) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
			UNION ALL SELECT format('trigger %s', pg_get_triggerdef(oid)) FROM pg_trigger WHERE NOT tgisinternal
			ORDER BY 1`
	}
	readRows(t, d, query, func(rows *sql.Rows) error {
		var line string
		err := rows.Scan(&line)
		lines = append(lines, line)
		return err
	})
	return lines
}

// readPostgres reads PostgreSQL's catalogue in the words of SQLite's.
func readPostgres(t *testing.T, d *db.DB) catalogue {
	t.Helper()
	c := catalogue{}
	c.read(t, d, `SELECT format('column %s.%s', c.relname, a.attname), concat_ws(' ',
			CASE format_type(a.atttypid, a.atttypmod) WHEN 'bytea' THEN 'blob' ELSE format_type(a.atttypid, a.atttypmod) END,
			CASE WHEN a.attnotnull THEN 'not null' END, 'default ' || pg_get_expr(e.adbin, e.adrelid))
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef e ON e.adrelid = c.oid AND e.adnum = a.attnum
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped`)
	const keys = `(SELECT string_agg(pg_get_indexdef(x.indexrelid, k, true), ', ' ORDER BY k) FROM generate_series(1, x.indnkeyatts) k)`
	c.read(t, d, `SELECT format('primary key of %s', x.indrelid::regclass), `+keys+` FROM pg_index x
		WHERE x.indisprimary AND x.indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)`)
	// A unique constraint has its columns for a name, since SQLite does not keep one.
	c.read(t, d, `SELECT CASE WHEN u.oid IS NULL THEN format('index %s', x.indexrelid::regclass) ELSE format('index %s(%s)', x.indrelid::regclass, `+keys+`) END,
			concat_ws(' ', CASE WHEN x.indisunique THEN 'unique' END, x.indrelid::regclass::text, '(' || `+keys+` || ')', 'where ' || pg_get_expr(x.indpred, x.indrelid, true))
		FROM pg_index x LEFT JOIN pg_constraint u ON u.conindid = x.indexrelid AND u.contype = 'u'
		WHERE NOT x.indisprimary AND x.indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)`)
	c.read(t, d, `SELECT format('checks of %s', conrelid::regclass), COUNT(*)::text FROM pg_constraint
		WHERE connamespace = 'public'::regnamespace AND contype = 'c' GROUP BY conrelid`)
	c.read(t, d, `SELECT format('foreign keys of %s', conrelid::regclass), COUNT(*)::text FROM pg_constraint
		WHERE connamespace = 'public'::regnamespace AND contype = 'f' GROUP BY conrelid`)
	c.read(t, d, `SELECT format('%ss of %s', lower(p), relname), 'refused' FROM pg_class, unnest(array['UPDATE', 'DELETE']) p
		WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'stoa_migrations' AND NOT has_table_privilege('stoa_platform', oid, p)`)
	c.remove("stoa_migrations")
	return c
}

// indexSQL matches a CREATE INDEX statement as SQLite keeps it: the table, its keys and its condition.
var indexSQL = regexp.MustCompile(`^CREATE (UNIQUE )?INDEX \w+ ON (\w+) \((.*?)\)(?: WHERE (.*))?$`)

// readSQLite reads SQLite's catalogue. Virtual tables and those that they consist of are left out.
func readSQLite(t *testing.T, d *db.DB) catalogue {
	t.Helper()
	c := catalogue{}
	const tables = ` pragma_table_list l WHERE l.schema = 'main' AND l.type = 'table' AND l.name NOT LIKE 'sqlite_%' AND l.name <> 'stoa_migrations' `
	c.read(t, d, `SELECT format('column %s.%s', l.name, x.name), concat_ws(' ', x.type, iif(x."notnull", 'not null', NULL), 'default ' || x.dflt_value)
		FROM pragma_table_xinfo(l.name) x,`+tables)
	c.read(t, d, `SELECT format('primary key of %s', l.name), (SELECT group_concat(x.name, ', ' ORDER BY x.pk) FROM pragma_table_xinfo(l.name) x WHERE x.pk > 0)
		FROM`+tables)
	c.read(t, d, `SELECT format('index %s(%s)', l.name, keys), format('unique %s (%s)', l.name, keys) FROM (SELECT l.name,
			(SELECT group_concat(k.name, ', ' ORDER BY k.seqno) FROM pragma_index_xinfo(i.name) k WHERE k.key) AS keys
		FROM pragma_index_list(l.name) i,`+tables+`AND i.origin = 'u') l`)
	readRows(t, d, `SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL`, func(rows *sql.Rows) error {
		var name, text string
		err := rows.Scan(&name, &text)
		m := indexSQL.FindStringSubmatch(text)
		if m == nil {
			return fmt.Errorf("index %s: %q does not match", name, text)
		}
		definition := m[1] + m[2] + "(" + m[3] + ")"
		if m[4] != "" {
			definition += " where " + m[4]
		}
		c["index "+name] = normalizeSQL(definition)
		return err
	})
	c.read(t, d, `SELECT format('checks of %s', name), '1' FROM sqlite_schema WHERE type = 'table' AND sql LIKE '% CHECK %(%'`)
	c.read(t, d, `SELECT format('foreign keys of %s', l.name), COUNT(*) FROM pragma_foreign_key_list(l.name) f,`+tables+`GROUP BY l.name`)
	c.read(t, d, `SELECT format('%ss of %s', p.column1, tbl_name), 'refused' FROM sqlite_schema, (VALUES ('update'), ('delete')) p
		WHERE type = 'trigger' AND sql LIKE format('%%BEFORE %s ON%%RAISE(ABORT%%', p.column1)`)
	c.remove("stoa_migrations")
	return c
}

// read adds the rows of query: an object and its definition.
func (c catalogue) read(t *testing.T, d *db.DB, query string) {
	t.Helper()
	readRows(t, d, query, func(rows *sql.Rows) error {
		var object, definition string
		err := rows.Scan(&object, &definition)
		c[object] = normalizeSQL(definition)
		return err
	})
}

// remove removes a table and what belongs to it.
func (c catalogue) remove(table string) {
	maps.DeleteFunc(c, func(object, definition string) bool {
		return strings.Contains(object, table) || strings.HasPrefix(object, "index ") && strings.Contains(definition, table)
	})
}

var (
	castSQL = regexp.MustCompile(`::\w+`)
	anySQL  = regexp.MustCompile(`= any \(array\[(.*?)\]\)`)
)

// normalizeSQL returns what PostgreSQL and SQLite print for the same expression: without casts, parentheses, spaces and
// quotes of names.
func normalizeSQL(text string) string {
	text = castSQL.ReplaceAllString(strings.ToLower(text), "")
	text = anySQL.ReplaceAllString(text, "in $1")
	return strings.NewReplacer("(", "", ")", "", " ", "", `"`, "").Replace(text)
}

// readRows calls scan for each row of query.
func readRows(t *testing.T, d *db.DB, query string, scan func(*sql.Rows) error) {
	t.Helper()
	changeSchema(t, d, func(s *sql.DB) error {
		rows, err := s.QueryContext(t.Context(), query)
		if err != nil {
			return fmt.Errorf("%w in %s", err, query)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func changeSchema(t *testing.T, d *db.DB, f func(*sql.DB) error) {
	t.Helper()
	if err := d.ChangeSchema(t.Context(), "", f); err != nil {
		t.Fatal(err)
	}
}
