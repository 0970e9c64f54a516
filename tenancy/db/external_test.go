package db_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newExternalDB returns the test's own PostgreSQL database as an app would configure it, with a login that is no
// superuser.
func newExternalDB(t *testing.T) (g db.ExternalDB, admin *pgx.Conn) {
	t.Helper()
	u, err := url.Parse(dbtest.NewPostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	admin, err = pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	for _, q := range []string{"CREATE ROLE " + name + " LOGIN PASSWORD 'pw'", "GRANT CREATE ON DATABASE " + name + " TO " + name} {
		if _, err := admin.Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx := context.Background()
		_, _ = admin.Exec(ctx, "DROP OWNED BY "+name)
		_, _ = admin.Exec(ctx, "DROP ROLE "+name)
		_ = admin.Close(ctx)
	})
	port, _ := strconv.Atoi(u.Port())
	return db.ExternalDB{Driver: db.Postgres, Host: u.Hostname(), Port: port, Database: name, Username: name, Password: "pw", MaxConns: 3, MaxIdle: 1}, admin
}

func openExternal(t *testing.T, g db.ExternalDB, roots *x509.CertPool) *db.DB {
	t.Helper()
	d, err := db.OpenExternal(t.Context(), g, db.Dialer{Dial: (&net.Dialer{}).DialContext, Roots: roots})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func runSQL(t *testing.T, d *db.DB, sql string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var b db.Batch
	b.Query(func(db.Row) error { return nil }, sql)
	return d.Tenant("acme").Do(ctx, &b)
}

// TestExternalLimits checks that max_conns bounds the connections in use, and max_idle the idle ones.
func TestExternalLimits(t *testing.T) {
	t.Parallel()
	g, admin := newExternalDB(t)
	d := openExternal(t, g, nil)
	count := func() (n int) {
		err := admin.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND application_name = 'stoa'", g.Username).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if err := runSQL(t, d, "SELECT pg_sleep(0.3)"); err != nil {
				t.Error(err)
			}
		})
	}
	over := make(chan struct{})
	go func() { wg.Wait(); close(over) }()
	most := 0
	for busy := true; busy; {
		most = max(most, count())
		select {
		case <-over:
			busy = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	if most != g.MaxConns {
		t.Errorf("%d connections at work, want %d", most, g.MaxConns)
	}
	remaining := count()
	for range 500 {
		if remaining == g.MaxIdle {
			return
		}
		time.Sleep(20 * time.Millisecond)
		remaining = count()
	}
	t.Errorf("%d connections rest, want %d", remaining, g.MaxIdle)
}

// TestExternalRole checks that an app's statements run as the app's login, whatever roles the server has.
func TestExternalRole(t *testing.T) {
	t.Parallel()
	g, _ := newExternalDB(t)
	g.Schema = "mine"
	d := openExternal(t, g, nil)
	for _, h := range []*db.Handle{d.Tenant("acme"), d.Platform()} {
		var who, path string
		var b db.Batch
		b.Query(func(r db.Row) error { return r.Scan(&who, &path) }, "SELECT CAST(current_user AS TEXT), current_setting('search_path')")
		if err := h.Do(t.Context(), &b); err != nil || who != g.Username || path != "mine" {
			t.Errorf("%s at %s, %v, want %s at mine", who, path, err, g.Username)
		}
	}
}

// TestExternalMessage checks that public messages contain neither the server's name nor the login.
func TestExternalMessage(t *testing.T) {
	t.Parallel()
	g, _ := newExternalDB(t)
	absent := g
	absent.Database = "nowhere"
	for _, c := range []struct {
		g    db.ExternalDB
		sql  string
		want string
	}{
		{absent, "SELECT 1", "there is no such database"},
		{g, "SELECT * FROM task", "the login lacks a privilege"},
		{g, "SELECT 1/0", "the database answered with error 22012"},
	} {
		if got := db.PublicMessage(runSQL(t, openExternal(t, c.g, nil), c.sql)); got != c.want {
			t.Errorf("%s: %q, want %q", c.sql, got, c.want)
		}
	}
	if got := db.PublicMessage(errors.New("x")); got != "" {
		t.Errorf("%q of an error that is no database's", got)
	}
}

// TestExternalFileNotShared checks that several apps may share a SQLite file, but not with a platform.
func TestExternalFileNotShared(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "own.db")
	g := db.ExternalDB{Driver: db.SQLite, Database: path, MaxConns: 2, MaxIdle: 1}
	first, second := openExternal(t, g, nil), openExternal(t, db.ExternalDB{Driver: db.SQLite, Database: path, MaxConns: 1}, nil)
	if err := runSQL(t, first, "CREATE TABLE x (n)"); err != nil {
		t.Fatal(err)
	}
	if err := runSQL(t, second, "SELECT n FROM x"); err != nil {
		t.Error(err)
	}
	if _, err := db.Open(t.Context(), "sqlite://"+path, db.Options{}); err == nil {
		t.Error("a platform opened a file that apps have open")
	}
	_ = first.Close()
	_ = second.Close()
	platform, err := db.Open(t.Context(), "sqlite://"+path, db.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = platform.Close() }()
	if _, err := db.OpenExternal(t.Context(), g, db.Dialer{}); err == nil {
		t.Error("an app opened the platform's file")
	}
}

// fakeServer is a minimal PostgreSQL server: it offers TLS with cert if there is one, asks for a password, and answers
// no query.
type fakeServer struct {
	net.Listener
	passwords chan string
}

func startFakeServer(t *testing.T, cert *tls.Certificate) fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := fakeServer{l, make(chan string, 16)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.handleConn(conn, cert) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return s
}

func (s fakeServer) handleConn(conn net.Conn, cert *tls.Certificate) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	secure := "plain"
	for {
		b := pgproto3.NewBackend(conn, conn)
		m, err := b.ReceiveStartupMessage()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.SSLRequest); ok {
			if cert == nil {
				_, _ = conn.Write([]byte("N"))
				continue
			}
			_, _ = conn.Write([]byte("S"))
			conn, secure = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{*cert}}), "tls"
			continue
		}
		b.Send(&pgproto3.AuthenticationCleartextPassword{})
		_ = b.SetAuthType(pgproto3.AuthTypeCleartextPassword)
		if b.Flush() != nil {
			return
		}
		if p, err := b.Receive(); err == nil {
			s.passwords <- secure + " " + p.(*pgproto3.PasswordMessage).Password
		}
		return
	}
}

func newCertificate(t *testing.T, name string) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// TestExternalTLSModes checks that each sslmode accepts the servers it should, and sends no password to others.
func TestExternalTLSModes(t *testing.T) {
	t.Parallel()
	named, trusted := newCertificate(t, "localhost")
	other, trustedToo := newCertificate(t, "elsewhere")
	_, untrusted := newCertificate(t, "localhost")
	for _, c := range []struct {
		mode                         string
		bare, good, misnamed, forged string // how the server received the password, or nothing
	}{
		{"disable", "plain", "plain", "plain", "plain"},
		{"allow", "plain", "plain", "plain", "plain"},
		{"prefer", "plain", "tls", "tls", "tls"},
		{"require", "", "tls", "tls", "tls"},
		{"verify-ca", "", "tls", "tls", ""},
		{"verify-full", "", "tls", "", ""},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			for _, s := range []struct {
				name  string
				cert  *tls.Certificate
				roots *x509.CertPool
				want  string
			}{
				{"bare", nil, trusted, c.bare}, {"good", named, trusted, c.good},
				{"misnamed", other, trustedToo, c.misnamed}, {"forged", named, untrusted, c.forged},
			} {
				srv := startFakeServer(t, s.cert)
				_, port, _ := net.SplitHostPort(srv.Addr().String())
				n, _ := strconv.Atoi(port)
				d := openExternal(t, db.ExternalDB{
					Driver: db.Postgres, Host: "localhost", Port: n, Database: "x", Username: "u", Password: "canary", SSLMode: c.mode, MaxConns: 1,
				}, s.roots)
				if err := runSQL(t, d, "SELECT 1"); err == nil {
					t.Error("a server that ends the connection answered")
				}
				got := ""
				select {
				case got = <-srv.passwords:
				default:
				}
				want := s.want
				if want != "" {
					want += " canary"
				}
				if got != want {
					t.Errorf("%s: the server got %q, want %q", s.name, got, want)
				}
			}
		})
	}
}

// TestExternalEnvironment checks that the process's environment variables for PostgreSQL are not used.
func TestExternalEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGPASSWORD": "canary", "PGUSER": "canary", "PGSSLMODE": "require", "PGHOST": "canary", "PGPORT": "1", "PGOPTIONS": "-c canary=1",
		"PGTARGETSESSIONATTRS": "read-only", "PGCONNECT_TIMEOUT": "1",
	} {
		t.Setenv(name, value)
	}
	srv := startFakeServer(t, nil)
	_, port, _ := net.SplitHostPort(srv.Addr().String())
	n, _ := strconv.Atoi(port)
	d := openExternal(t, db.ExternalDB{Driver: db.Postgres, Host: "127.0.0.1", Port: n, Database: "x", Username: "u", MaxConns: 1}, nil)
	if err := runSQL(t, d, "SELECT 1"); err == nil {
		t.Error("a server that ends the connection answered")
	}
	select {
	case got := <-srv.passwords:
		if got != "plain " {
			t.Errorf("the server got %q, want an empty password", got)
		}
	default:
		t.Error("the server was not asked")
	}
}

// TestExternalTimeout checks that callers of a server that does not answer get an error in time.
func TestExternalTimeout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	d := openExternal(t, db.ExternalDB{Driver: db.Postgres, Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Database: "x", Username: "u", MaxConns: 2}, nil)
	var wg sync.WaitGroup
	began := time.Now()
	for range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			var b db.Batch
			b.Query(func(db.Row) error { return nil }, "SELECT 1")
			if err := d.Tenant("acme").Do(ctx, &b); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, want the end of the caller's time", err)
			}
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("callers with 300 ms waited for %s", took)
	}
}
