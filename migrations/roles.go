package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Roles are the names of the logins on PostgreSQL in an installation of least privilege.
type Roles struct {
	Owner  string // migrates, and owns the tables
	Login  string // serves, and owns nothing
	Backup string // reads everything for pg_dump
}

// rolesSQL has {NAME_LITERAL} and {NAME} in place of each login, as text and as an identifier.
//
//go:embed roles.sql
var rolesSQL string

// SQL returns the statements that an administrator runs once in Stoa's database, to create the logins and the two roles
// of statements. They can be repeated.
func (r Roles) SQL() string {
	pairs := make([]string, 0, 12)
	for _, one := range [][2]string{{"OWNER", r.Owner}, {"LOGIN", r.Login}, {"BACKUP", r.Backup}} {
		literal := "'" + strings.ReplaceAll(one[1], "'", "''") + "'"
		pairs = append(pairs, "{"+one[0]+"_LITERAL}", literal, "{"+one[0]+"}", pgx.Identifier{one[1]}.Sanitize())
	}
	return strings.NewReplacer(pairs...).Replace(rolesSQL)
}

// HasRoles reports whether the login of db, on PostgreSQL, may act under the two roles of Stoa's statements.
func HasRoles(ctx context.Context, db *sql.DB) (bool, error) {
	n := 0
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_roles WHERE rolname IN ('stoa_tenant', 'stoa_platform') AND pg_has_role(rolname, 'MEMBER')").Scan(&n)
	return n == 2, err
}
