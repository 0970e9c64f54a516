package db

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

// defaultMySQLPort is the port of a server that none is configured for.
const defaultMySQLPort = 3306

// openMySQL prepares the pool of a MySQL or MariaDB database. The driver reads no files for the server (LOAD DATA LOCAL)
// and sends no password in clear text or in the form of servers before 4.1, unless over TLS.
func openMySQL(g ExternalDB, dialer Dialer) (*sql.DB, error) {
	c := mysql.NewConfig()
	c.Net, c.Addr = "tcp", net.JoinHostPort(g.Host, strconv.Itoa(cmp.Or(g.Port, defaultMySQLPort)))
	c.User, c.Passwd, c.DBName = g.Username, g.Password, g.Database
	c.DialFunc = dialer.Dial
	c.Timeout, c.ReadTimeout, c.WriteTimeout = externalConnectTimeout, 2*externalStatementTimeout, externalStatementTimeout
	c.MaxAllowedPacket = maxExternalMessage
	c.Logger = &mysql.NopLogger{}
	c.TLS, c.AllowFallbackToPlaintext = newMySQLTLS(g, dialer)
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, errors.New("the settings of the database cannot be used")
	}
	return sql.OpenDB(connector), nil
}

// newMySQLTLS returns the TLS configuration for an sslmode, and whether the connection may be made without TLS where the
// server has none. MySQL negotiates TLS in the same connection, so that allow and prefer mean the same.
func newMySQLTLS(g ExternalDB, dialer Dialer) (c *tls.Config, fallback bool) {
	for _, mode := range tlsModes[g.SSLMode](g.Host, dialer.Roots) {
		if mode == nil {
			fallback = true
			continue
		}
		c = mode
	}
	return c, fallback && c != nil
}

// errUnknownVariable is MySQL's error for a variable that the server does not have.
const errUnknownVariable = 1193

// limitMySQLStatements makes the server end statements of a connection after externalStatementTimeout. The variable is
// called differently by MySQL (milliseconds) and MariaDB (seconds).
func limitMySQLStatements(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION max_execution_time = %d", externalStatementTimeout.Milliseconds()))
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == errUnknownVariable {
		_, err = conn.ExecContext(ctx, fmt.Sprintf("SET SESSION max_statement_time = %d", int(externalStatementTimeout.Seconds())))
	}
	return err
}

// publicMySQLMessages are publicMessages for the error numbers of MySQL and MariaDB.
var publicMySQLMessages = map[uint16]string{
	1045: "the login was refused", 1044: "the login was refused", 1698: "the login was refused", 1049: "there is no such database",
	1142: "the login lacks a privilege", 1143: "the login lacks a privilege", 1040: "the server has no connection left",
	1203: "the server has no connection left", 1146: "there is no such table", 1054: "there is no such column",
	3024: "no answer in time", 1969: "no answer in time",
}

// mysqlMessage returns the public message of an error of MySQL's driver, "" for any other.
func mysqlMessage(err error) string {
	var refused *mysql.MySQLError
	switch {
	case errors.As(err, &refused):
		if text := publicMySQLMessages[refused.Number]; text != "" {
			return text
		}
		return fmt.Sprintf("the database answered with error %d", refused.Number)
	case errors.Is(err, mysql.ErrNoTLS):
		return "the server has no TLS, which ssl_mode demands"
	case errors.Is(err, mysql.ErrCleartextPassword), errors.Is(err, mysql.ErrOldPassword), errors.Is(err, mysql.ErrNativePassword),
		errors.Is(err, mysql.ErrUnknownPlugin), errors.Is(err, mysql.ErrOldProtocol):
		return "the server demands a kind of login that is not supported"
	case errors.Is(err, mysql.ErrPktTooLarge):
		return fmt.Sprintf("a row is longer than %d bytes", maxExternalMessage)
	}
	return ""
}
