package db

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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
	c.Timeout, c.ReadTimeout, c.WriteTimeout = externalConnectTimeout, 2*externalStatementTimeout, externalStatementTimeout
	c.MaxAllowedPacket = maxExternalMessage
	c.Logger = &mysql.NopLogger{}
	transport, fallback := newMySQLTLS(g, dialer)
	newConnector := func(ctx context.Context, dial dialFunc) (driver.Connector, error) {
		c := c.Clone()
		conn, err := dialMySQL(ctx, dial, c.Addr, transport, fallback)
		if err != nil {
			return nil, err
		}
		if conn.tls != nil {
			c.Net = "unix" // The driver sends a password in clear text where the server takes no other, because the connection is private.
		}
		c.DialFunc = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
		connector, err := mysql.NewConnector(c)
		if err != nil {
			return nil, errors.New("the settings of the database cannot be used")
		}
		return connector, nil
	}
	return sql.OpenDB(&guardedConnector{dial: dialer.Dial, newConnector: newConnector, driver: mysql.MySQLDriver{}}), nil
}

// dialMySQL connects to a server and reads its greeting.
func dialMySQL(ctx context.Context, dial dialFunc, address string, transport *tls.Config, fallback bool) (*mysqlConn, error) {
	ctx, cancel := context.WithTimeout(ctx, externalConnectTimeout)
	defer cancel()
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	server := conn.(*serverConn)
	defer context.AfterFunc(ctx, server.closeNow)()
	m, err := newMySQLConn(server, transport, fallback)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return m, err
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

// Parts of MySQL's protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html.
const (
	mysqlHeaderSize = 4 // the length of the payload in three bytes, and the packet's number

	mysqlOK, mysqlAuthSwitch, mysqlErr, mysqlAuthMore, mysqlLocalFile = 0x00, 0xfe, 0xff, 0x01, 0xfb
	mysqlQuery, mysqlExecute                                          = 0x03, 0x17 // commands

	mysqlClientTLS = 0x0800 // the capability CLIENT_SSL
	// mysqlTLSRequest is the size of the packet that asks for TLS: the beginning of the client's answer to the greeting.
	mysqlTLSRequest = 32

	// maxMySQLLogin bounds a packet before the first command, maxMySQLColumns the columns of a result (4096 is MySQL's
	// own limit), maxMySQLKey the bits of the key that a password is encrypted for.
	maxMySQLLogin   = 64 << 10
	maxMySQLColumns = 4096
	maxMySQLKey     = 8192
)

// mysqlConn is the connection to a MySQL server that an app brings. It checks what the driver uses without a check: the
// driver allocates as many columns as a server announces, and memory that the process does not have is no panic but its
// end. For that it has to see the packets, and so it negotiates TLS instead of the driver, which sees a server without.
type mysqlConn struct {
	// Conn is the plain connection, and that in TLS after the login began.
	net.Conn
	server *serverConn
	// tls is how the connection is made private; nil = not.
	tls *tls.Config
	// isLogin is set until the first command. shift is what the packet for TLS, which the driver does not know of, adds to
	// the numbers of the packets after it.
	isLogin bool
	shift   byte
	// isFirst is set from a command with rows until the first packet of its answer.
	isFirst bool
	// head is what was read of the present packet to check it, and not returned yet; rest is how much follows in Conn.
	head []byte
	rest int
}

// newMySQLConn reads the server's greeting from server. Its TLS begins with the first packet of the driver.
func newMySQLConn(server *serverConn, c *tls.Config, fallback bool) (*mysqlConn, error) {
	m := &mysqlConn{Conn: server, server: server, isLogin: true}
	if err := m.readHead(); err != nil {
		return nil, err
	}
	if c == nil || m.head[mysqlHeaderSize] == mysqlErr {
		return m, nil
	}
	switch capabilities, err := checkMySQLGreeting(m.head[mysqlHeaderSize:]); {
	case err != nil:
		return nil, err
	case capabilities&mysqlClientTLS != 0:
		m.tls = c
	case !fallback:
		return nil, mysql.ErrNoTLS
	}
	return m, nil
}

// Read implements [net.Conn]. It returns bytes of one packet at most, so that the driver holds nothing of the next answer
// before its command.
func (m *mysqlConn) Read(p []byte) (int, error) {
	if len(m.head) == 0 && m.rest == 0 {
		if err := m.readHead(); err != nil {
			return 0, err
		}
	}
	if len(m.head) > 0 {
		n := copy(p, m.head)
		m.head = m.head[n:]
		return n, nil
	}
	n, err := m.Conn.Read(p[:min(len(p), m.rest)])
	m.rest -= n
	return n, err
}

// readHead reads the header of the next packet and what is checked of it.
func (m *mysqlConn) readHead() error {
	const longestCount = 9 // bytes of the number of columns
	var header [mysqlHeaderSize]byte
	if _, err := io.ReadFull(m.Conn, header[:]); err != nil {
		return err
	}
	size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	checked := 0
	switch {
	case m.isLogin && (size == 0 || size > maxMySQLLogin):
		return m.server.fail(fmt.Errorf("%w: a packet of the login has %d bytes", errMalformedPacket, size))
	case m.isLogin:
		checked = size
	case m.isFirst:
		checked = min(size, longestCount)
	}
	m.head, m.rest = make([]byte, mysqlHeaderSize+checked), size-checked
	copy(m.head, header[:])
	if _, err := io.ReadFull(m.Conn, m.head[mysqlHeaderSize:]); err != nil {
		return err
	}
	err := m.checkHead(m.head[mysqlHeaderSize:], header[3])
	if err != nil {
		return m.server.fail(err)
	}
	m.head[3] -= m.shift
	m.isFirst = false
	return nil
}

// checkHead checks a packet, or its beginning, as far as the driver does not. number is the packet's.
func (m *mysqlConn) checkHead(p []byte, number byte) error {
	switch {
	case m.isLogin && number == 0 && p[0] != mysqlErr:
		_, err := checkMySQLGreeting(p)
		return err
	case m.isLogin:
		return checkMySQLLogin(p)
	case m.isFirst && len(p) > 0 && p[0] != mysqlOK && p[0] != mysqlErr && p[0] != mysqlLocalFile:
		if count := readMySQLNumber(p); count > maxMySQLColumns {
			return fmt.Errorf("%w: a result has %d columns, more than %d", errMalformedPacket, count, maxMySQLColumns)
		}
	}
	return nil
}

// errMalformedPacket reports that a server has sent a packet that it may not send.
var errMalformedPacket = fmt.Errorf("%w: a packet is malformed", errDriverPanic)

// checkMySQLGreeting checks the first packet of a server and returns its capabilities (the lower half).
func checkMySQLGreeting(p []byte) (capabilities uint16, err error) {
	const (
		numberSize, scrambleSize, fillerSize = 4, 8, 1
		// afterCapabilities are the character set, the status, the upper capabilities, the length of the scramble, what is
		// reserved, and the second part of the scramble.
		afterCapabilities = 1 + 2 + 2 + 1 + 10 + 13
	)
	version := bytes.IndexByte(p[1:], 0)
	at := 1 + version + 1 + numberSize + scrambleSize + fillerSize
	if version < 0 || len(p) < at+2+afterCapabilities {
		return 0, fmt.Errorf("%w: the greeting is too short", errMalformedPacket)
	}
	return binary.LittleEndian.Uint16(p[at:]), nil
}

// checkMySQLLogin checks a packet that answers the login.
func checkMySQLLogin(p []byte) error {
	const shortestOK, shortestErr, stateSize, scrambleSize = 7, 4, 6, 20
	switch p[0] {
	case mysqlOK:
		if len(p) < shortestOK || p[1] >= mysqlLocalFile || p[2] >= mysqlLocalFile { // a login affects no row and makes no id
			return fmt.Errorf("%w: OK", errMalformedPacket)
		}
	case mysqlErr:
		if len(p) < shortestErr || p[3] == '#' && len(p) < 3+stateSize {
			return fmt.Errorf("%w: an error is too short", errMalformedPacket)
		}
	case mysqlAuthSwitch:
		name, scramble, _ := bytes.Cut(p[1:], []byte{0})
		if len(p) > 1 && string(name) == "mysql_native_password" && len(scramble) < scrambleSize {
			return fmt.Errorf("%w: the scramble is too short", errMalformedPacket)
		}
	case mysqlAuthMore:
		return checkMySQLKey(p[1:])
	}
	return nil
}

// checkMySQLKey checks the key of a server for the encryption of the password. What is no key is a message of the login.
func checkMySQLKey(p []byte) error {
	block, _ := pem.Decode(p)
	if block == nil {
		return nil
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil //nolint:nilerr // the driver reports it
	}
	if k, ok := key.(*rsa.PublicKey); !ok || k.N.BitLen() > maxMySQLKey {
		return fmt.Errorf("%w: the key of the server is no RSA key of at most %d bits", errMalformedPacket, maxMySQLKey)
	}
	return nil
}

// readMySQLNumber returns the number with a length at the beginning of p; one that is cut off is larger than any bound.
func readMySQLNumber(p []byte) uint64 {
	sizes := map[byte]int{0xfc: 2, 0xfd: 3, 0xfe: 8}
	size, long := sizes[p[0]]
	if !long {
		return uint64(p[0])
	}
	if len(p) < 1+size {
		return 1 << 63
	}
	var full [8]byte
	copy(full[:], p[1:1+size])
	return binary.LittleEndian.Uint64(full[:])
}

// Write implements [net.Conn]. The driver writes one packet a call, or a part of one that is longer than a packet may be.
func (m *mysqlConn) Write(p []byte) (int, error) {
	switch {
	case len(p) > mysqlHeaderSize && p[3] == 0: // a command begins the numbers again
		m.isLogin, m.shift = false, 0
		m.isFirst = p[mysqlHeaderSize] == mysqlQuery || p[mysqlHeaderSize] == mysqlExecute
		return m.Conn.Write(p)
	case !m.isLogin || m.tls == nil:
		return m.Conn.Write(p)
	}
	packet := slices.Clone(p)
	if m.shift == 0 {
		if err := m.beginTLS(packet); err != nil {
			return 0, m.server.fail(err)
		}
	}
	packet[3] += m.shift
	n, err := m.Conn.Write(packet)
	return n, err
}

// beginTLS asks the server for TLS and begins it. packet is the driver's answer to the greeting: the request is its
// beginning, and both must name the same capabilities.
func (m *mysqlConn) beginTLS(packet []byte) error {
	if len(packet) < mysqlHeaderSize+mysqlTLSRequest {
		return errMalformedPacket
	}
	packet[mysqlHeaderSize+1] |= mysqlClientTLS >> 8
	request := slices.Clone(packet[:mysqlHeaderSize+mysqlTLSRequest])
	request[0], request[1], request[2] = mysqlTLSRequest, 0, 0
	if _, err := m.server.Write(request); err != nil {
		return err
	}
	encrypted := tls.Client(m.server, m.tls)
	if err := encrypted.Handshake(); err != nil { //nolint:noctx // the connection has a deadline
		return err
	}
	m.Conn, m.shift = encrypted, 1
	return nil
}
