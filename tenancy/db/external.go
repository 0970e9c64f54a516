package db

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	sqlite3 "modernc.org/sqlite/lib"
)

// Bounds for the server of an external database, which the tenant chose.
const (
	externalConnectTimeout   = 5 * time.Second
	externalStatementTimeout = 10 * time.Second
	// maxExternalMessage bounds one message of PostgreSQL's protocol, in bytes.
	maxExternalMessage = 64 << 20
)

// ExternalDB describes a database that an app brings, with a login of the app's own. Two equal values are the same
// database used in the same way, so that it may serve as the key of a cache.
type ExternalDB struct {
	Driver Engine
	// Host is the server's host, a name or an address, never a socket.
	Host string
	// Port is the server's port; 0 means 5432, of MySQL 3306.
	Port int
	// Database is the name of the server's database, or the path of SQLite's file.
	Database           string
	Username, Password string
	// SSLMode is one of PostgreSQL's sslmode values; "" means disable.
	SSLMode string
	// MaxConns is at least 1; MaxIdle is how many connections stay open unused.
	MaxConns, MaxIdle int
	// Schema is PostgreSQL's search_path; "" means the login's own.
	Schema string
}

// Dialer is how an external database is reached, with the restrictions of its app.
type Dialer struct {
	// Dial opens the connection and enforces the app's rules for outgoing connections, name resolution included.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Roots are the trusted certificate authorities; nil means the system's.
	Roots *x509.CertPool
	// TenantFile are the rules for SQLite's file; nil means that the file is the operator's and trusted.
	TenantFile *TenantFileRules
}

// OpenExternal returns the external database g. It connects when there is something to do, only through dialer, and
// reads nothing from the process's environment. A statement ends within externalStatementTimeout. The database has none
// of Stoa's roles, so its handles do not isolate tenants: a statement that does not name its tenant reaches every row.
func OpenExternal(ctx context.Context, g ExternalDB, dialer Dialer) (*DB, error) {
	d := &DB{engineKind: g.Driver}
	var err error
	switch g.Driver {
	case SQLite:
		d.engine, err = openSQLite(ctx, g.Database, sqliteOptions{readers: g.MaxConns - 1, idle: min(g.MaxIdle, g.MaxConns-1), shared: true, maxDuration: externalStatementTimeout, tenantRules: dialer.TenantFile})
	case Postgres:
		d.engine, err = openExternal(ctx, g, dialer)
	default:
		err = fmt.Errorf("an app cannot use a database of the kind %q", g.Driver)
	}
	if err != nil {
		return nil, err
	}
	d.coalescer = newCoalescer(d.engine, maxWriters[d.engineKind])
	return d, nil
}

// openExternal opens an external PostgreSQL database.
func openExternal(ctx context.Context, g ExternalDB, dialer Dialer) (engine, error) {
	cfg, err := newExternalPoolConfig(g, dialer)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = int32(g.MaxConns), 0, 0
	limitIdle(cfg, g.MaxIdle)
	cfg.AfterConnect = registerColumnCodecs
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &serverConn{Conn: conn, left: maxServerAnswer}, nil // the time of each answer is bounded by withTimeout
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	p := newPostgresEngine(pool, newTxBegin("stoa.role"), 2*externalStatementTimeout)
	p.isExternal = true
	return p, nil
}

// newExternalPoolConfig returns how connections to an external PostgreSQL database are made. Nothing of it comes from
// the process's environment.
func newExternalPoolConfig(g ExternalDB, dialer Dialer) (*pgxpool.Config, error) {
	// The complete text keeps the parser from taking a login from the environment; all of its values are replaced below.
	cfg, err := pgxpool.ParseConfig("host=app port=5432 user=app password=app dbname=app sslmode=disable sslnegotiation=postgres")
	if err != nil {
		return nil, errors.New("the process's own settings for PostgreSQL clients cannot be read")
	}
	c := &cfg.ConnConfig.Config
	c.Host, c.Port, c.Database, c.User, c.Password = g.Host, 5432, g.Database, g.Username, g.Password
	if g.Port != 0 {
		c.Port = uint16(g.Port)
	}
	c.TLSConfig, c.Fallbacks = nil, nil
	for i, t := range tlsModes[g.SSLMode](g.Host, dialer.Roots) {
		if i == 0 {
			c.TLSConfig = t
			continue
		}
		c.Fallbacks = append(c.Fallbacks, &pgconn.FallbackConfig{Host: c.Host, Port: c.Port, TLSConfig: t})
	}
	c.DialFunc = dialer.Dial
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // Dial resolves the name
	c.ConnectTimeout, c.MaxProtocolMessageBodyLen = externalConnectTimeout, maxExternalMessage
	c.ValidateConnect, c.AfterConnect, c.KerberosSrvName, c.KerberosSpn = nil, nil, "", ""
	c.RuntimeParams = map[string]string{
		"application_name": "stoa", "statement_timeout": fmt.Sprint(externalStatementTimeout.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(externalStatementTimeout.Milliseconds()),
	}
	if g.Schema != "" {
		c.RuntimeParams["search_path"] = g.Schema
	}
	return cfg, nil
}

// tlsModes maps sslmode to the configurations to try, in order; nil means without TLS. They follow the documentation of
// PostgreSQL's libpq.
var tlsModes = map[string]func(host string, roots *x509.CertPool) []*tls.Config{
	"":          func(string, *x509.CertPool) []*tls.Config { return []*tls.Config{nil} },
	"disable":   func(string, *x509.CertPool) []*tls.Config { return []*tls.Config{nil} },
	"allow":     func(string, *x509.CertPool) []*tls.Config { return []*tls.Config{nil, unverifiedTLS()} },
	"prefer":    func(string, *x509.CertPool) []*tls.Config { return []*tls.Config{unverifiedTLS(), nil} },
	"require":   func(string, *x509.CertPool) []*tls.Config { return []*tls.Config{unverifiedTLS()} },
	"verify-ca": func(_ string, roots *x509.CertPool) []*tls.Config { return []*tls.Config{verifiedCATLS(roots)} },
	"verify-full": func(host string, roots *x509.CertPool) []*tls.Config {
		return []*tls.Config{{ServerName: host, RootCAs: roots}}
	},
}

// unverifiedTLS encrypts without verifying the server, which is what allow, prefer and require mean.
func unverifiedTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the mode's meaning
}

// verifiedCATLS accepts a server with any name whose certificate is signed by one of roots, as verify-ca demands.
func verifiedCATLS(roots *x509.CertPool) *tls.Config {
	t := unverifiedTLS()
	t.VerifyConnection = func(s tls.ConnectionState) error {
		o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, c := range s.PeerCertificates[1:] {
			o.Intermediates.AddCert(c)
		}
		_, err := s.PeerCertificates[0].Verify(o)
		return err
	}
	return t
}

// limitIdle makes the pool keep at most limit unused connections; pgxpool has no such setting.
func limitIdle(cfg *pgxpool.Config, limit int) {
	var mu sync.Mutex
	idle := map[*pgx.Conn]bool{}
	markInUse := func(c *pgx.Conn) {
		mu.Lock()
		defer mu.Unlock()
		delete(idle, c)
	}
	cfg.PrepareConn = func(_ context.Context, c *pgx.Conn) (bool, error) { markInUse(c); return true, nil }
	cfg.BeforeClose = markInUse
	cfg.AfterRelease = func(c *pgx.Conn) bool {
		mu.Lock()
		defer mu.Unlock()
		if len(idle) >= limit {
			return false
		}
		idle[c] = true
		return true
	}
}

// publicMessages maps a SQLSTATE to a text that may be shown to the tenant that chose the database. The server's own
// message is not shown, since it may contain data.
var publicMessages = map[string]string{
	"28P01": "the login was refused", "28000": "the login was refused", "3D000": "there is no such database",
	"42501": "the login lacks a privilege", "53300": "the server has no connection left", "57P03": "the server is starting",
	"57014": "no answer in time", "53100": "the server's disk is full", "25006": "the server is read-only",
	"42P01": "there is no such table", "42703": "there is no such column",
}

// PublicMessage describes an error of an external database to the tenant that chose it. It is "" if err is not an
// answer of a database.
func PublicMessage(err error) string {
	var lite interface{ Code() int }
	var file *fileError
	if errors.As(err, &file) {
		return file.Error()
	}
	switch {
	case errors.Is(err, errDriverPanic):
		return errDriverPanic.Error()
	case errors.Is(err, errAnswerTooLarge):
		return errAnswerTooLarge.Error()
	}
	switch word, known := publicMessages[sqlState(err)]; {
	case known:
		return word
	case mysqlMessage(err) != "":
		return mysqlMessage(err)
	case sqlState(err) != "":
		return "the database answered with error " + sqlState(err)
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_CANTOPEN:
		return "the database file does not exist or cannot be opened"
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_NOTADB:
		return "the file is no SQLite database"
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_INTERRUPT:
		return "no answer in time"
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_TOOBIG:
		return fmt.Sprintf("a value in the database file is longer than %d bytes", maxValueSize)
	case errors.As(err, &lite):
		return fmt.Sprintf("SQLite answered with error %d", lite.Code())
	}
	return ""
}

// Bounds for the answers of a server that an app brings.
const (
	// maxServerAnswer bounds one answer, in bytes: all rows of a statement, with what is read only to be dropped.
	maxServerAnswer = maxExternalMessage
	// serverAnswerTimeout bounds the time of one answer, however steadily it arrives.
	serverAnswerTimeout = readTimeout
	// serverCloseTimeout is the same for what a connection or a transaction ends with, which has no context.
	serverCloseTimeout = 2 * time.Second
)

// errAnswerTooLarge reports that a server has sent more than maxServerAnswer for one statement.
var errAnswerTooLarge = fmt.Errorf("the server has sent more than %d bytes for one statement", maxServerAnswer)

// serverConn is the network connection to a server that an app brings. It bounds each answer in bytes and in time: a
// driver bounds a single read only, so that a server that sends a byte now and then would never reach a timeout.
type serverConn struct {
	net.Conn

	mu sync.Mutex // guards the fields below
	// left is how many bytes of the answer may still come; deadline is when it must have come, zero without such a bound.
	left     int64
	deadline time.Time
	// failed is why the connection was given up, which a driver replaces by an error of its own; nil if it was not.
	failed error
}

// newServerConn returns conn with the bounds of the login.
func newServerConn(conn net.Conn) *serverConn {
	c := &serverConn{Conn: conn}
	c.beginAnswer(2 * externalConnectTimeout)
	return c
}

// beginBytes begins the bound of another answer whose time its caller bounds.
func (c *serverConn) beginBytes() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = maxServerAnswer
}

// beginAnswer begins the bounds of another answer.
func (c *serverConn) beginAnswer(limit time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left, c.deadline = maxServerAnswer, time.Now().Add(limit)
	// A driver that sets no deadline of its own is bounded, too.
	_ = c.Conn.SetDeadline(c.deadline)
}

// Read implements [net.Conn].
func (c *serverConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	left := c.left
	c.mu.Unlock()
	if left <= 0 {
		return 0, c.fail(errAnswerTooLarge)
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.mu.Lock()
	c.left -= int64(n)
	c.mu.Unlock()
	return n, err
}

// SetDeadline implements [net.Conn].
func (c *serverConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn]. A later time than the answer's is not set.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	return c.Conn.SetReadDeadline(c.limitDeadline(t))
}

// SetWriteDeadline implements [net.Conn]. A later time than the answer's is not set.
func (c *serverConn) SetWriteDeadline(t time.Time) error {
	return c.Conn.SetWriteDeadline(c.limitDeadline(t))
}

// limitDeadline returns the earlier one of t and the answer's deadline.
func (c *serverConn) limitDeadline(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.deadline.IsZero() && (t.IsZero() || t.After(c.deadline)) {
		return c.deadline
	}
	return t
}

// fail gives the connection up because of err, and returns err.
func (c *serverConn) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
	_ = c.Conn.Close()
	return err
}

// explain returns why the connection was given up, if it was, instead of the error that the driver made of it.
func (c *serverConn) explain(err error) error {
	if c == nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.failed != nil {
		return c.failed
	}
	return err
}

// closeNow closes the connection, if there is one, without the driver.
func (c *serverConn) closeNow() {
	if c != nil {
		_ = c.Conn.Close()
	}
}
