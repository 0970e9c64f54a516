package migrations

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Roles are the names of the logins on PostgreSQL in an installation of least privilege.
type Roles struct {
	Owner  string // migrates, and owns the tables
	Login  string // serves, and owns nothing
	Backup string // reads everything for pg_dump
	// Passwords are those of the logins that have one, by their names. PostgreSQL is given verifiers of them, not the
	// passwords, which a log of its statements would show.
	Passwords map[string]string
}

// rolesSQL has {NAME_LITERAL} and {NAME} in place of each login, as text and as an identifier.
//
//go:embed roles.sql
var rolesSQL string

// Apply executes the statements of [Roles.SQL] in db, whose login must be an administrator's, all or none.
func (r Roles) Apply(ctx context.Context, db *sql.DB) error {
	statements, err := r.SQL()
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// Several statements at once need the simple protocol.
	if _, err := tx.ExecContext(ctx, statements, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("create the roles of Stoa: %w", err)
	}
	return tx.Commit()
}

// SQL returns the statements that an administrator runs once in Stoa's database, to create the logins and the two roles
// of statements, and to set the passwords of the logins that have one. They can be repeated.
func (r Roles) SQL() (string, error) {
	pairs := make([]string, 0, 12)
	for _, one := range [][2]string{{"OWNER", r.Owner}, {"LOGIN", r.Login}, {"BACKUP", r.Backup}} {
		literal := "'" + strings.ReplaceAll(one[1], "'", "''") + "'"
		pairs = append(pairs, "{"+one[0]+"_LITERAL}", literal, "{"+one[0]+"}", pgx.Identifier{one[1]}.Sanitize())
	}
	statements := strings.NewReplacer(pairs...).Replace(rolesSQL)
	for _, login := range []string{r.Owner, r.Login, r.Backup} {
		password, ok := r.Passwords[login]
		if !ok {
			continue
		}
		verifier, err := newVerifier(password)
		if err != nil {
			return "", fmt.Errorf("the password of %s: %w", login, err)
		}
		statements += fmt.Sprintf("ALTER ROLE %s PASSWORD '%s';\n", pgx.Identifier{login}.Sanitize(), verifier)
	}
	for login := range r.Passwords {
		if !slices.Contains([]string{r.Owner, r.Login, r.Backup}, login) {
			return "", fmt.Errorf("there is a password for %s, which is none of the logins %s, %s and %s", login, r.Owner, r.Login, r.Backup)
		}
	}
	return statements, nil
}

// Parameters of verifiers, as PostgreSQL chooses them.
const (
	scramIterations = 4096
	scramSaltBytes  = 16
)

// newVerifier returns what PostgreSQL stores of a password for the authentication SCRAM-SHA-256 (RFC 5802, section 3).
func newVerifier(password string) (string, error) {
	// The normalisation of other characters (SASLprep) is left out.
	isOther := func(r rune) bool { return r < '!' || r > '~' }
	if password == "" || strings.ContainsFunc(password, isOther) {
		return "", errors.New("it must be of letters, digits and signs of ASCII, without spaces")
	}
	salt := make([]byte, scramSaltBytes)
	_, _ = rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, password, salt, scramIterations, sha256.Size)
	if err != nil {
		return "", err
	}
	sign := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, encode(salt), encode(stored[:]), encode(sign("Server Key"))), nil
}

// HasRoles reports whether the login of db, on PostgreSQL, may act under the two roles of Stoa's statements.
func HasRoles(ctx context.Context, db *sql.DB) (bool, error) {
	n := 0
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM pg_roles WHERE rolname IN ('stoa_tenant', 'stoa_platform') AND pg_has_role(rolname, 'MEMBER')").Scan(&n)
	return n == 2, err
}
