package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"stoa/migrations"
	"stoa/tenancy/db"
)

// leastPrivilege is what to do about a login with too many rights.
const leastPrivilege = "let an administrator run the SQL that stoa migrate roles prints, then serve as stoa_login with --no-migrate, and migrate as stoa_owner"

// login is what PostgreSQL knows of a login.
type login struct {
	name                string
	superuser, bypasses bool
	// acts means that it may act under the two roles of statements, inherits that it has their rights also without that.
	acts, inherits bool
	// owned counts the tables of Stoa that it, or a role it is a member of, owns; creates means that it may create tables.
	owned   int
	creates bool
	// database identifies the database and its server, at their last start.
	database string
	version  string
}

// readLoginSQL reads the present login. A role owns what the login may change by ALTER TABLE.
const readLoginSQL = `SELECT current_user, rolsuper, rolbypassrls,
	COALESCE((SELECT pg_has_role(p.oid, 'USAGE') FROM pg_roles p WHERE p.rolname = 'stoa_platform'), false),
	(SELECT count(*) FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = to_regnamespace(current_schema()) AND c.relname = ANY($1) AND pg_has_role(c.relowner, 'USAGE')),
	COALESCE(has_schema_privilege(current_schema(), 'CREATE'), false),
	current_database() || ' of ' || pg_postmaster_start_time(), current_setting('server_version')
	FROM pg_roles WHERE rolname = current_user`

// readLogin returns the login of a URL.
func readLogin(ctx context.Context, address string) (l login, err error) {
	err = db.ReadSchema(address, func(_ db.Engine, s *sql.DB) error {
		if err := s.QueryRowContext(ctx, readLoginSQL, migrations.ProtectedTables()).Scan(&l.name, &l.superuser, &l.bypasses, &l.inherits, &l.owned, &l.creates, &l.database, &l.version); err != nil {
			return err
		}
		l.acts, err = migrations.HasRoles(ctx, s)
		return err
	})
	return l, err
}

// checkPostgres reports the logins, row-level security and extensions of a PostgreSQL database.
func (o openedDatabase) checkPostgres(ctx context.Context) []Check {
	serving, err := readLogin(ctx, o.Settings.Database.URL)
	if err != nil {
		c := fail("login", "the rights of the login cannot be read: "+o.hidePasswords(err), "check the log of PostgreSQL")
		return append([]Check{c}, skipAll("the login cannot be read", postgresChecks[1:]...)...)
	}
	return []Check{checkLogin(serving, o.schema.Current > 0), o.checkMigrationLogin(ctx, serving), checkRowSecurity(ctx, o.db, serving, o.schema), checkExtension(ctx, o.Settings.Database.URL)}
}

// checkLogin reports whether the login that serves is bound by row-level security. migrated means that there are tables.
func checkLogin(l login, migrated bool) Check {
	const name = "login"
	switch {
	case l.superuser:
		return fail(name, l.name+" is a superuser: row-level security binds its statements only while a role is set", leastPrivilege)
	case l.bypasses:
		return fail(name, l.name+" has BYPASSRLS: row-level security binds its statements only while a role is set", "ALTER ROLE "+l.name+" NOBYPASSRLS, or "+leastPrivilege)
	case !l.acts && migrated:
		return fail(name, l.name+" may not act under the roles stoa_tenant and stoa_platform", "GRANT stoa_tenant, stoa_platform TO "+l.name+"; stoa migrate roles prints all of it")
	case !l.acts:
		return warn(name, l.name+" may not act under the roles stoa_tenant and stoa_platform yet", "the first migration creates them if its login may create roles; stoa migrate roles prints the SQL for an administrator")
	case l.inherits && l.owned == 0:
		return warn(name, l.name+" has the rights of stoa_platform also where no role is set", "ALTER ROLE "+l.name+" NOINHERIT, and repeat the GRANT of the roles, so that its password alone reads no table")
	}
	return pass(name, "%s: no superuser, no BYPASSRLS, acts under the roles of Stoa", l.name)
}

// checkMigrationLogin reports whether a login of its own changes the schema.
func (o openedDatabase) checkMigrationLogin(ctx context.Context, serving login) Check {
	const name = "migration_login"
	address := o.Settings.Database.MigrateURL
	switch {
	case address == "" && serving.owned > 0:
		return warn(name, fmt.Sprintf("%s, which serves, owns %d tables and can turn their row-level security off", serving.name, serving.owned), leastPrivilege)
	case address == "" && o.Settings.Database.NoMigrate:
		return skip(name, "--no-migrate: this process never changes the schema")
	case address == "" && !serving.creates:
		return warn(name, serving.name+" may not create tables, and there is no --migrate-database: a start on an older schema fails", "run stoa migrate up as the owner before each new version, and serve with --no-migrate; or set --migrate-database")
	case address == "":
		return warn(name, serving.name+", which serves, also creates the tables", leastPrivilege)
	}
	migrating, err := readLogin(ctx, address)
	switch {
	case err != nil:
		return fail(name, o.hidePasswords(err), "correct --migrate-database, or serve with --no-migrate and without it")
	case migrating.database != serving.database:
		return fail(name, "--migrate-database leads to another database or server than --database", "name the same host and database in both")
	case migrating.name == serving.name:
		return warn(name, migrating.name+" is the login that serves", leastPrivilege)
	case migrating.owned == 0 && !migrating.creates:
		return fail(name, migrating.name+" owns no table of Stoa and may not create one", "name the owner of the tables in --migrate-database; stoa migrate roles prints what it needs")
	case serving.owned > 0:
		return warn(name, fmt.Sprintf("%s, which serves, owns %d tables as well and can turn their row-level security off", serving.name, serving.owned), leastPrivilege)
	}
	return pass(name, "%s changes the schema, %s serves", migrating.name, serving.name)
}

// readProtectionSQL returns, for each of the tables $1 and of the approximate indexes that exists, whether row-level security is forced, and whether the
// role of tenants may read it.
const readProtectionSQL = `SELECT t, c.relrowsecurity AND c.relforcerowsecurity, COALESCE(has_table_privilege(r.oid, c.oid, 'SELECT'), false)
	FROM unnest($1::text[] || ARRAY(SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace(current_schema())
		AND relname ~ '^chunk_hnsw_[0-9a-f]{32}$')) t JOIN pg_class c ON c.oid = to_regclass(quote_ident(t)) LEFT JOIN pg_roles r ON r.rolname = 'stoa_tenant' ORDER BY t`

// checkRowSecurity reports whether row-level security is forced on every table, and whether a transaction under the role of
// tenants that has set no tenant reads a row.
func checkRowSecurity(ctx context.Context, d *db.DB, serving login, s migrations.Status) Check {
	const name = "row_security"
	const repair = "stop serving, find out who changed it, and restore the policies from a migrated database of the same version"
	if s.Current == 0 {
		return skip(name, "there are no tables yet")
	}
	if !serving.acts {
		return skip(name, "the login may not act under the roles")
	}
	tables := migrations.ProtectedTables()
	found, unforced, readable := 0, []string{}, []string{}
	err := db.ReadSchema(d.URL(), func(_ db.Engine, s *sql.DB) error {
		rows, err := s.QueryContext(ctx, readProtectionSQL, tables)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var table string
			var forced, reads bool
			if err := rows.Scan(&table, &forced, &reads); err != nil {
				return err
			}
			if slices.Contains(tables, table) {
				found++
			}
			if !forced {
				unforced = append(unforced, table)
			}
			if reads {
				readable = append(readable, table)
			}
		}
		return rows.Err()
	})
	if err != nil {
		return fail(name, "the catalogue cannot be read: "+err.Error(), "check the log of PostgreSQL")
	}
	if len(unforced) > 0 {
		return fail(name, "row-level security is not in force for "+strings.Join(unforced, ", "), "ALTER TABLE ... ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY as the owner, then: "+repair)
	}
	if found < len(tables) && s.IsCurrent() {
		return fail(name, fmt.Sprintf("%d of %d tables exist", found, len(tables)), "restore the missing tables from a backup")
	}
	seen, err := probeTenantRole(ctx, d, readable)
	switch {
	case err != nil:
		return fail(name, "the role stoa_tenant cannot read: "+err.Error(), "restore the grants: stoa migrate roles prints those of the logins")
	case len(seen) > 0:
		return fail(name, "the role stoa_tenant reads rows without a tenant, of "+strings.Join(seen, ", "), repair)
	}
	return pass(name, "forced on %d tables and all approximate indexes; the role of tenants reads no row of %d tables while no tenant is set", found, len(readable))
}

// probeTenantRole returns which of tables shows a row to a transaction under the role of tenants without a tenant. It reads
// them through the handle that stores use.
func probeTenantRole(ctx context.Context, d *db.DB, tables []string) (seen []string, err error) {
	var b db.Batch
	for _, table := range tables {
		b.Query(func(db.Row) error {
			seen = append(seen, table)
			return nil
		}, `SELECT 1 FROM "`+strings.ReplaceAll(table, `"`, `""`)+`" LIMIT 1`)
	}
	return seen, d.Tenant("").Do(ctx, &b)
}

// readExtensionSQL reads the version of the extension vector, whether the role of tenants may use it, and how many approximate
// indexes there are; their table is in the schema since migration 5.
const readExtensionSQL = `SELECT e.extversion, COALESCE(has_schema_privilege(r.oid, e.extnamespace, 'USAGE'), false),
	(SELECT count(*) FROM pg_class c WHERE c.relkind = 'r' AND c.relname ~ '^chunk_hnsw_[0-9a-f]{32}$')
	FROM pg_extension e LEFT JOIN pg_roles r ON r.rolname = 'stoa_tenant' WHERE e.extname = 'vector'`

// oldExtension matches the versions of the extension that are not used.
var oldExtension = regexp.MustCompile(`^0\.[0-7](\.|$)`)

// checkExtension reports the extension pgvector. Its absence is no warning: only stores with many chunks need it, and their log and
// status say so.
func checkExtension(ctx context.Context, address string) Check {
	const name = "pgvector"
	var version string
	usable, indexes := false, 0
	err := db.ReadSchema(address, func(_ db.Engine, s *sql.DB) error {
		return s.QueryRowContext(ctx, readExtensionSQL).Scan(&version, &usable, &indexes)
	})
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return skip(name, "not installed: searches compare all vectors of a document store, however large it is")
	case err != nil:
		return warn(name, "the extensions cannot be read: "+err.Error(), "check the log of PostgreSQL")
	case oldExtension.MatchString(version):
		return warn(name, "version "+version+" is installed and not used: it finds too few documents under a filter", "install version 0.8 or later, then ALTER EXTENSION vector UPDATE")
	case !usable:
		return warn(name, "version "+version+" is installed in a schema that the roles of Stoa may not use", "GRANT USAGE ON SCHEMA of the extension TO stoa_tenant, stoa_platform and the login that owns the tables")
	}
	return pass(name, "version %s is installed; approximate indexes of large document stores: %d", version, indexes)
}

// checkDatabaseClock compares the clock of the database with that of this process.
func (o openedDatabase) checkDatabaseClock(ctx context.Context) Check {
	const name = "database_clock"
	if o.db.Engine() == db.SQLite {
		return skip(name, "SQLite has the clock of the process")
	}
	if o.schema.Current == 0 { // nor the function stoa_now
		return skip(name, "there are no tables yet")
	}
	var micros int64
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&micros) }, "SELECT stoa_now()")
	began := o.now()
	if err := o.db.Platform().Do(ctx, &b); err != nil {
		return fail(name, "the clock cannot be read: "+o.hidePasswords(err), "repair what login reports")
	}
	return checkClock(name, "the database", time.UnixMicro(micros), began, o.now())
}
