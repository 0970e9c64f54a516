package db_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"stoa/tenancy/db"
)

// newServer starts a server that talks to each client with talk. Its connections are closed at the end of the test.
func newServer(t testing.TB, driver db.Engine, talk func(c net.Conn)) db.ExternalDB {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var open []net.Conn
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			clients.Go(func() {
				defer func() { _ = c.Close() }()
				talk(c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		clients.Wait()
	})
	return db.ExternalDB{Driver: driver, Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Database: "shop", Username: "reader", Password: "x", MaxConns: 1, MaxIdle: 1}
}

// mysqlPacket returns a packet of MySQL's protocol.
func mysqlPacket(number byte, payload ...byte) []byte {
	n := len(payload)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), number}, payload...)
}

// mysqlGreeting is the first packet of a MySQL server without TLS.
var mysqlGreeting = mysqlPacket(0, []byte("\x0a8.0.0\x00\x01\x00\x00\x00abcdefgh\x00\x85\xa2\x21\x02\x00\x08\x00\x15"+strings.Repeat("\x00", 10)+"ijklmnopqrst\x00mysql_native_password\x00")...)

var mysqlOKPayload = []byte{0, 0, 0, 2, 0, 0, 0}

// readMySQLPacket returns the payload of the next packet, nil at the end.
func readMySQLPacket(c io.Reader) []byte {
	var header [4]byte
	if _, err := io.ReadFull(c, header[:]); err != nil {
		return nil
	}
	p := make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
	if _, err := io.ReadFull(c, p); err != nil {
		return nil
	}
	return p
}

// talkMySQL logs a client in, answers OK to its commands and what answer returns to its queries that begin with SELECT.
func talkMySQL(answer func(query string) []byte) func(c net.Conn) {
	return func(c net.Conn) {
		_, _ = c.Write(mysqlGreeting)
		if readMySQLPacket(c) == nil {
			return
		}
		_, _ = c.Write(mysqlPacket(2, mysqlOKPayload...))
		for {
			p := readMySQLPacket(c)
			if len(p) == 0 {
				return
			}
			reply := mysqlPacket(1, mysqlOKPayload...)
			if p[0] == 3 && strings.HasPrefix(string(p[1:]), "SELECT") {
				reply = answer(string(p[1:]))
			}
			if _, err := c.Write(reply); err != nil {
				return
			}
		}
	}
}

// talkPostgres logs a client in and answers each execution with a row of the given number of columns, where the
// description has one.
func talkPostgres(columns int) func(c net.Conn) {
	return func(c net.Conn) {
		talkPostgresRows(c, func() {
			row, _ := (&pgproto3.DataRow{Values: slices.Repeat([][]byte{[]byte("1")}, columns)}).Encode(nil)
			_, _ = c.Write(row)
		})
	}
}

// talkPostgresRows is a server whose executions answer with what sendRows sends.
func talkPostgresRows(c net.Conn, sendRows func()) {
	b := pgproto3.NewBackend(c, c)
	if _, err := b.ReceiveStartupMessage(); err != nil {
		return
	}
	status, parameters := byte('I'), 0
	send := func(messages ...pgproto3.BackendMessage) {
		for _, m := range messages {
			b.Send(m)
		}
		_ = b.Flush()
	}
	send(&pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"},
		&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	description := &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("a"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}}}
	for {
		m, err := b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			if strings.HasPrefix(strings.ToLower(m.String), "begin") {
				status = 'T'
			} else {
				status = 'I'
			}
			send(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")}, &pgproto3.ReadyForQuery{TxStatus: status})
		case *pgproto3.Parse:
			parameters = strings.Count(m.Query, "$")
			send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			send(&pgproto3.BindComplete{})
		case *pgproto3.Describe:
			if m.ObjectType == 'S' {
				send(&pgproto3.ParameterDescription{ParameterOIDs: slices.Repeat([]uint32{25}, parameters)})
			}
			send(description)
		case *pgproto3.Execute:
			sendRows()
			send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		case *pgproto3.Sync:
			send(&pgproto3.ReadyForQuery{TxStatus: status})
		case *pgproto3.Terminate:
			return
		}
	}
}

// readOnce reads all rows of one statement from an external database.
func readOnce(t testing.TB, g db.ExternalDB) error {
	t.Helper()
	d, err := db.OpenReadOnly(g, db.Dialer{Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	return d.Read(t.Context(), readRows)
}

// columnCount returns the packet that announces 1<<bits columns.
func columnCount(bits int) []byte {
	return mysqlPacket(1, binary.LittleEndian.AppendUint64([]byte{0xfe}, 1<<bits)...)
}

// TestHostileServer checks that no answer of an app's server ends the process or blocks it: the read returns an error, in
// time.
func TestHostileServer(t *testing.T) {
	t.Parallel()
	shortRow := mysqlPacket(1, 1)
	shortRow = append(shortRow, mysqlPacket(2, append([]byte("\x03def\x00\x01t\x01t\x01a\x01a\x0c\x21\x00"), 0, 0, 16, 0, 253, 0, 0, 0, 0, 0)...)...)
	shortRow = append(shortRow, mysqlPacket(3, 0xfe, 0, 0, 2, 0)...)
	shortRow = append(shortRow, mysqlPacket(4, 0xfd)...)
	for name, g := range map[string]db.ExternalDB{
		"mysql: a cut OK at the login": newServer(t, db.MySQL, func(c net.Conn) {
			_, _ = c.Write(mysqlGreeting)
			readMySQLPacket(c)
			_, _ = c.Write(mysqlPacket(2, 0, 0xfe))
			readMySQLPacket(c)
		}),
		"mysql: a cut greeting":              newServer(t, db.MySQL, func(c net.Conn) { _, _ = c.Write(mysqlPacket(0, 10, 'a', 0)); readMySQLPacket(c) }),
		"mysql: a cut error":                 newServer(t, db.MySQL, func(c net.Conn) { _, _ = c.Write(mysqlPacket(0, 0xff, 1)); readMySQLPacket(c) }),
		"mysql: a cut OK":                    newServer(t, db.MySQL, talkMySQL(func(string) []byte { return mysqlPacket(1, 0, 0xfe) })),
		"mysql: 1<<62 columns":               newServer(t, db.MySQL, talkMySQL(func(string) []byte { return columnCount(62) })),
		"mysql: more columns than memory":    newServer(t, db.MySQL, talkMySQL(func(string) []byte { return columnCount(40) })),
		"mysql: a cut row":                   newServer(t, db.MySQL, talkMySQL(func(string) []byte { return shortRow })),
		"postgres: more values than columns": newServer(t, db.Postgres, talkPostgres(9)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			done := make(chan error, 1)
			go func() { done <- readOnce(t, g) }()
			select {
			case err := <-done:
				if err == nil || db.PublicMessage(err) == "" && !strings.Contains(err.Error(), "malformed") {
					t.Errorf("got %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("the read did not return")
			}
		})
	}
}

// mysqlRows is an answer with the columns and rows of a table.
func mysqlRows(rows ...string) []byte {
	definition := []byte("\x03def\x00\x01t\x01t\x01a\x01a\x0c\x21\x00\x00\x00\x10\x00\xfd\x00\x00\x00\x00\x00")
	end := []byte{0xfe, 0, 0, 2, 0}
	out := append(append(mysqlPacket(1, 1), mysqlPacket(2, definition...)...), mysqlPacket(3, end...)...)
	number := byte(4)
	for _, r := range rows {
		out = append(out, mysqlPacket(number, append([]byte{byte(len(r))}, r...)...)...)
		number++
	}
	return append(out, mysqlPacket(number, end...)...)
}

// dialBytes returns a dial function for a server that sends data, whatever it is asked, and then ends.
func dialBytes(data []byte) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, server) }()
		go func() {
			_, _ = server.Write(data)
			_ = server.Close()
		}()
		return client, nil
	}
}

// readBytes reads from a server that sends data.
func readBytes(t testing.TB, driver db.Engine, data []byte) error {
	t.Helper()
	d, err := db.OpenReadOnly(db.ExternalDB{Driver: driver, Host: "h", Database: "d", Username: "u", Password: "p", MaxConns: 1}, db.Dialer{Dial: dialBytes(data)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	return d.Read(ctx, readRows)
}

// readRows reads all rows of one statement.
func readRows(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, "SELECT a FROM t")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	if _, err := rows.ColumnTypes(); err != nil {
		return err
	}
	for rows.Next() {
		var v any
		if err := rows.Scan(&v); err != nil {
			return err
		}
	}
	return rows.Err()
}

// FuzzMySQLServer checks that no bytes of a server end the process or block the reader.
func FuzzMySQLServer(f *testing.F) {
	login := append(append([]byte{}, mysqlGreeting...), mysqlPacket(2, mysqlOKPayload...)...)
	ok := mysqlPacket(1, mysqlOKPayload...)
	refused := mysqlPacket(1, []byte("\xff\x15\x04#28000Access denied")...)
	good := append(append(append(append([]byte{}, login...), ok...), append(ok, ok...)...), mysqlRows("x", "long")...)
	f.Add(append(good, ok...))
	f.Add(append(append([]byte{}, login...), refused...))
	f.Add(append(append([]byte{}, mysqlGreeting...), mysqlPacket(2, []byte("\xfemysql_native_password\x00abcdefghijklmnopqrst\x00")...)...))
	f.Add(append(append([]byte{}, mysqlGreeting...), mysqlPacket(2, []byte("\xfecaching_sha2_password\x00abcdefghijklmnopqrst\x00")...)...))
	f.Add(append(append(append(append([]byte{}, login...), ok...), append(ok, ok...)...), columnCount(40)...))
	f.Fuzz(func(t *testing.T, data []byte) { _ = readBytes(t, db.MySQL, data) })
}

// FuzzPostgresServer is [FuzzMySQLServer] for PostgreSQL, also for a database of sessions.
func FuzzPostgresServer(f *testing.F) {
	encode := func(messages ...pgproto3.BackendMessage) (out []byte) {
		for _, m := range messages {
			var err error
			if out, err = m.Encode(out); err != nil {
				f.Fatal(err)
			}
		}
		return out
	}
	login := encode(&pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"}, &pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{1, 2, 3, 4}}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	begun := encode(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")}, &pgproto3.ReadyForQuery{TxStatus: 'T'})
	described := encode(&pgproto3.ParseComplete{}, &pgproto3.ParameterDescription{}, &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("a"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}}},
		&pgproto3.ReadyForQuery{TxStatus: 'T'}, &pgproto3.BindComplete{})
	for _, values := range [][][]byte{{[]byte("1")}, {[]byte("1"), []byte("2")}} {
		f.Add(append(append(append(append([]byte{}, login...), begun...), described...), encode(&pgproto3.DataRow{Values: values}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.ReadyForQuery{TxStatus: 'T'})...))
	}
	f.Add(encode(&pgproto3.AuthenticationSASL{AuthMechanisms: []string{"SCRAM-SHA-256"}}, &pgproto3.AuthenticationSASLContinue{Data: []byte("r=abc,s=AAAA,i=4096")}))
	f.Add(encode(&pgproto3.AuthenticationMD5Password{Salt: [4]byte{1, 2, 3, 4}}, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "no"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = readBytes(t, db.Postgres, data)
		d, err := db.OpenExternal(t.Context(), db.ExternalDB{Driver: db.Postgres, Host: "h", Database: "d", Username: "u", Password: "p", MaxConns: 1}, db.Dialer{Dial: dialBytes(data)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_ = d.Platform().RunTx(ctx, func(tx *db.Tx) error { return tx.Query(ctx, func(db.Row) error { return nil }, "SELECT 1") })
	})
}

// TestEndlessAnswer checks that an answer without an end ends at the bound, for sources and for sessions.
func TestEndlessAnswer(t *testing.T) {
	t.Parallel()
	row, err := (&pgproto3.DataRow{Values: [][]byte{make([]byte, 1<<20)}}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	endless := func(c net.Conn, prefix, repeated []byte) {
		_, err := c.Write(prefix)
		for err == nil {
			_, err = c.Write(repeated)
		}
	}
	mysqlHead := mysqlRows()
	mysqlHead = mysqlHead[:len(mysqlHead)-len(mysqlPacket(0, 0xfe, 0, 0, 2, 0))]
	servers := map[string]db.ExternalDB{
		"mysql": newServer(t, db.MySQL, func(c net.Conn) {
			talkMySQL(func(string) []byte {
				number := byte(4)
				_, err := c.Write(mysqlHead)
				for err == nil {
					_, err = c.Write(mysqlPacket(number, append([]byte{0xfd, 0, 0, 8}, make([]byte, 8<<16)...)...))
					number++
				}
				return nil
			})(c)
		}),
		"postgres": newServer(t, db.Postgres, func(c net.Conn) { talkPostgresRows(c, func() { endless(c, nil, row) }) }),
	}
	const want = "the server has sent more than 67108864 bytes for one statement"
	for name, g := range servers {
		if got := db.PublicMessage(readOnce(t, g)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	d, err := db.OpenExternal(t.Context(), servers["postgres"], db.Dialer{Dial: (&net.Dialer{}).DialContext})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	err = d.Platform().RunTx(t.Context(), func(tx *db.Tx) error { return tx.Query(t.Context(), func(db.Row) error { return nil }, "SELECT 1") })
	if got := db.PublicMessage(err); got != want {
		t.Errorf("sessions: got %q (%v), want %q", got, err, want)
	}
}

// TestSlowServer checks that a server that answers the end of a transaction byte by byte does not keep the reader, which has
// no context to end it with.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	defer close(stop)
	g := newServer(t, db.MySQL, func(c net.Conn) {
		_, _ = c.Write(mysqlGreeting)
		if readMySQLPacket(c) == nil {
			return
		}
		_, err := c.Write(mysqlPacket(2, mysqlOKPayload...))
		for err == nil {
			p := readMySQLPacket(c)
			switch {
			case len(p) == 0:
				return
			case strings.HasPrefix(string(p[1:]), "SELECT"):
				_, err = c.Write(mysqlRows("x"))
			case strings.HasPrefix(string(p[1:]), "ROLLBACK"):
				drip := time.NewTicker(200 * time.Millisecond)
				defer drip.Stop()
				_, err = c.Write([]byte{0xff, 0xff, 0, 1})
				for err == nil {
					select {
					case <-drip.C:
						_, err = c.Write([]byte{0})
					case <-stop:
						return
					}
				}
			default:
				_, err = c.Write(mysqlPacket(1, mysqlOKPayload...))
			}
		}
	})
	began := time.Now()
	if err := readOnce(t, g); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("the read took %s", took)
	}
}
