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

// Bounds of what a guest's server is trusted with.
const (
	externalConnectTimeout   = 5 * time.Second
	externalStatementTimeout = 10 * time.Second
	maxExternalMessage       = 64 << 20 // bytes of one message of the protocol
)

// ExternalDB is where a database is that an app brings: not the platform's, with a login that is nobody's but the app's.
// Two that are equal are the same database, used in the same way.
type ExternalDB struct {
	Driver             Engine
	Host               string // of PostgreSQL; a name or an address, never a socket
	Port               int    // 0 = the driver's usual one
	Database           string // its name, or SQLite's file
	Username, Password string
	SSLMode            string // as PostgreSQL names them; "" = disable
	MaxConns, MaxIdle  int    // MaxConns is at least 1
	Schema             string // of PostgreSQL, in which unqualified names are looked up; "" = the login's own
}

// Dialer is how a guest's server is reached.
type Dialer struct {
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	Roots      *x509.CertPool   // nil = the system's
	TenantFile *TenantFileRules // what SQLite's file is held to; nil = it is the operator's
}

// OpenExternal returns the database of a guest. It connects when there is something to do; what it connects to it reaches
// by way alone, reading nothing from the environment. Statements end within ten seconds. Its handles know no roles: a
// statement that forgets its tenant reaches every row there is.
func OpenExternal(ctx context.Context, g ExternalDB, dialer Dialer) (*DB, error) {
	d := &DB{engineKind: g.Driver}
	var err error
	switch g.Driver {
	case SQLite:
		d.engine, err = openSQLite(ctx, g.Database, sqliteOptions{readers: g.MaxConns - 1, idle: min(g.MaxIdle, g.MaxConns-1), shared: true, maxDuration: externalStatementTimeout, tenantRules: dialer.TenantFile})
	case Postgres:
		d.engine, err = openExternal(ctx, g, dialer)
	default:
		err = fmt.Errorf("no guest has a database of the kind %q", g.Driver)
	}
	if err != nil {
		return nil, err
	}
	d.coalescer = newCoalescer(d.engine, maxWriters[d.engineKind])
	return d, nil
}

func openExternal(ctx context.Context, g ExternalDB, dialer Dialer) (engine, error) {
	// The text keeps the parser from looking for a login elsewhere; what it found all the same is set anew below.
	cfg, err := pgxpool.ParseConfig("host=guest port=5432 user=guest password=guest dbname=guest sslmode=disable sslnegotiation=postgres")
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
	c.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil } // the dialler's task
	c.ConnectTimeout, c.MaxProtocolMessageBodyLen = externalConnectTimeout, maxExternalMessage
	c.ValidateConnect, c.AfterConnect, c.KerberosSrvName, c.KerberosSpn = nil, nil, "", ""
	c.RuntimeParams = map[string]string{
		"application_name": "stoa", "statement_timeout": fmt.Sprint(externalStatementTimeout.Milliseconds()),
		"idle_in_transaction_session_timeout": fmt.Sprint(externalStatementTimeout.Milliseconds()),
	}
	if g.Schema != "" {
		c.RuntimeParams["search_path"] = g.Schema
	}
	cfg.MaxConns, cfg.MinConns, cfg.MinIdleConns = int32(g.MaxConns), 0, 0
	limitIdle(cfg, g.MaxIdle)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return newPostgresEngine(pool, newTxBegin("stoa.role"), 2*externalStatementTimeout), nil
}

// tlsModes are the modes of encryption: what is tried, one after the other; nil = without.
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

// unverifiedTLS encrypts and asks nobody who they are: what the modes allow, prefer and require promise, and no more.
func unverifiedTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the mode's meaning
}

// verifiedCATLS takes a server of any name whose certificate somebody among roots has signed.
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

// limitIdle has the pool keep no more than limit connections that nobody uses.
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

// publicMessages are what a server's codes mean, in words that may be shown to whoever chose the database.
var publicMessages = map[string]string{
	"28P01": "the login was refused", "28000": "the login was refused", "3D000": "there is no such database",
	"42501": "the login lacks a privilege", "53300": "the server has no connection left", "57P03": "the server is starting",
	"57014": "no answer in time", "53100": "the server's disk is full", "25006": "the server is read-only",
}

// PublicMessage puts what a database said into words that may be shown to whoever chose it. It is "" where err is not an
// answer of a database.
func PublicMessage(err error) string {
	var lite interface{ Code() int }
	var file *fileError
	if errors.As(err, &file) {
		return file.Error()
	}
	switch word, known := publicMessages[sqlState(err)]; {
	case known:
		return word
	case sqlState(err) != "":
		return "the database answered with error " + sqlState(err)
	case errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_TOOBIG:
		return fmt.Sprintf("a value in the database file is longer than %d bytes", maxValueSize)
	case errors.As(err, &lite):
		return fmt.Sprintf("SQLite answered with error %d", lite.Code())
	}
	return ""
}
