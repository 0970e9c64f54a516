package db

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// A server that an app brings may send anything, and drivers index what it sent without a check. database/sql calls a
// driver with locks held and in goroutines of its own (for the end of a transaction's context, for instance): a panic there
// leaves a lock that Rollback waits for without an end, or ends the process. The types of this file stand between
// database/sql and the driver. They turn a panic into an error, close the connection, and do not call the driver of that
// connection again.

// errDriverPanic reports that a driver panicked on what a server has sent.
var errDriverPanic = errors.New("the server's answer does not follow its protocol")

// recoverDriver calls f, a call of a driver, and returns a panic of it as an error.
func recoverDriver(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			slog.Default().Warn("the driver of an app's database panicked on what its server sent: the connection is closed", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = fmt.Errorf("%w: %v", errDriverPanic, p)
		}
	}()
	return f()
}

// dialFunc is [Dialer.Dial].
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// guardedConnector opens the connections to a server that an app brings.
type guardedConnector struct {
	dial dialFunc
	// newConnector returns the driver's connector for one connection, which it makes with dial.
	newConnector func(ctx context.Context, dial dialFunc) (driver.Connector, error)
	driver       driver.Driver
}

// Driver implements [driver.Connector].
func (c *guardedConnector) Driver() driver.Driver { return c.driver }

// Connect implements [driver.Connector].
func (c *guardedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	var mu sync.Mutex // guards server and connected
	var server *serverConn
	connected := false
	// A driver may dial again: for instance without TLS, after it has closed the connection before, or to cancel a request
	// later.
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		dialled := newServerConn(conn)
		if !connected {
			server = dialled
		}
		return dialled, nil
	}
	var conn driver.Conn
	err := recoverDriver(func() error {
		connector, err := c.newConnector(ctx, dial)
		if err == nil {
			conn, err = connector.Connect(ctx)
		}
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	connected = true
	if err != nil {
		server.closeNow()
		return nil, server.explain(err)
	}
	return &guardedConn{conn: conn, server: server}, nil
}

// guardedConn is a connection of a driver.
type guardedConn struct {
	conn   driver.Conn
	server *serverConn
	// broken is set after a panic: the state of the driver's connection is unknown.
	broken atomic.Bool
}

var (
	_ driver.ConnBeginTx        = (*guardedConn)(nil)
	_ driver.ConnPrepareContext = (*guardedConn)(nil)
	_ driver.QueryerContext     = (*guardedConn)(nil)
	_ driver.ExecerContext      = (*guardedConn)(nil)
	_ driver.Pinger             = (*guardedConn)(nil)
	_ driver.SessionResetter    = (*guardedConn)(nil)
	_ driver.Validator          = (*guardedConn)(nil)
	_ driver.NamedValueChecker  = (*guardedConn)(nil)
)

// call calls the driver, unless it has panicked before on this connection.
func (g *guardedConn) call(f func() error) error {
	if g.broken.Load() {
		return driver.ErrBadConn
	}
	err := recoverDriver(f)
	if errors.Is(err, errDriverPanic) {
		g.broken.Store(true)
		g.server.closeNow()
	}
	return g.server.explain(err)
}

// send is call for a request of its own, for whose answer the bounds begin again.
func (g *guardedConn) send(f func() error) error {
	g.server.beginAnswer(serverAnswerTimeout)
	return g.call(f)
}

// Begin implements [driver.Conn]. database/sql does not call it.
func (g *guardedConn) Begin() (driver.Tx, error) { return nil, driver.ErrSkip }

// BeginTx implements [driver.ConnBeginTx].
func (g *guardedConn) BeginTx(ctx context.Context, o driver.TxOptions) (tx driver.Tx, err error) {
	err = g.send(func() (err error) {
		tx, err = g.conn.(driver.ConnBeginTx).BeginTx(ctx, o)
		return err
	})
	return &guardedTx{g, tx}, err
}

// Prepare implements [driver.Conn].
func (g *guardedConn) Prepare(query string) (driver.Stmt, error) {
	return g.PrepareContext(context.Background(), query)
}

// PrepareContext implements [driver.ConnPrepareContext].
func (g *guardedConn) PrepareContext(ctx context.Context, query string) (s driver.Stmt, err error) {
	err = g.send(func() (err error) {
		s, err = g.conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &guardedStmt{g, s}, nil
}

// QueryContext implements [driver.QueryerContext].
func (g *guardedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return g.queryRows(func() (driver.Rows, error) { return g.conn.(driver.QueryerContext).QueryContext(ctx, query, args) })
}

// queryRows returns the rows of query.
func (g *guardedConn) queryRows(query func() (driver.Rows, error)) (driver.Rows, error) {
	r := &guardedRows{g: g}
	err := g.send(func() (err error) {
		if r.rows, err = query(); err == nil {
			r.columns = r.rows.Columns()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// ExecContext implements [driver.ExecerContext].
func (g *guardedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (r driver.Result, err error) {
	err = g.send(func() (err error) {
		r, err = g.conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return r, err
}

// Ping implements [driver.Pinger].
func (g *guardedConn) Ping(ctx context.Context) error {
	return g.send(func() error { return g.conn.(driver.Pinger).Ping(ctx) })
}

// ResetSession implements [driver.SessionResetter].
func (g *guardedConn) ResetSession(ctx context.Context) error {
	return g.send(func() error { return g.conn.(driver.SessionResetter).ResetSession(ctx) })
}

// IsValid implements [driver.Validator].
func (g *guardedConn) IsValid() bool {
	valid := true
	err := g.call(func() error {
		if v, ok := g.conn.(driver.Validator); ok {
			valid = v.IsValid()
		}
		return nil
	})
	return err == nil && valid
}

// CheckNamedValue implements [driver.NamedValueChecker].
func (g *guardedConn) CheckNamedValue(v *driver.NamedValue) error {
	return g.call(func() error { return g.conn.(driver.NamedValueChecker).CheckNamedValue(v) })
}

// Close implements [driver.Conn]. The server gets no time to answer beyond serverCloseTimeout.
func (g *guardedConn) Close() error {
	defer g.server.closeNow()
	g.server.beginAnswer(serverCloseTimeout)
	return recoverDriver(g.conn.Close) // also after a panic: the driver's goroutine of the connection ends
}

// guardedTx is a transaction of a driver.
type guardedTx struct {
	g  *guardedConn
	tx driver.Tx
}

// Commit implements [driver.Tx].
func (t *guardedTx) Commit() error { return t.g.send(t.tx.Commit) }

// Rollback implements [driver.Tx]. It has no context: its bound is serverCloseTimeout.
func (t *guardedTx) Rollback() error {
	t.g.server.beginAnswer(serverCloseTimeout)
	return t.g.call(t.tx.Rollback)
}

// guardedStmt is a prepared statement of a driver.
type guardedStmt struct {
	g    *guardedConn
	stmt driver.Stmt
}

var (
	_ driver.StmtQueryContext  = (*guardedStmt)(nil)
	_ driver.StmtExecContext   = (*guardedStmt)(nil)
	_ driver.NamedValueChecker = (*guardedStmt)(nil)
)

// Close implements [driver.Stmt].
func (s *guardedStmt) Close() error {
	s.g.server.beginAnswer(serverCloseTimeout)
	return s.g.call(s.stmt.Close)
}

// NumInput implements [driver.Stmt].
func (s *guardedStmt) NumInput() (n int) {
	n = -1 // not checked
	_ = s.g.call(func() error { n = s.stmt.NumInput(); return nil })
	return n
}

// Exec implements [driver.Stmt]. database/sql does not call it.
func (s *guardedStmt) Exec([]driver.Value) (driver.Result, error) { return nil, driver.ErrSkip }

// Query implements [driver.Stmt]. database/sql does not call it.
func (s *guardedStmt) Query([]driver.Value) (driver.Rows, error) { return nil, driver.ErrSkip }

// ExecContext implements [driver.StmtExecContext].
func (s *guardedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (r driver.Result, err error) {
	err = s.g.send(func() (err error) {
		r, err = s.stmt.(driver.StmtExecContext).ExecContext(ctx, args)
		return err
	})
	return r, err
}

// QueryContext implements [driver.StmtQueryContext].
func (s *guardedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.g.queryRows(func() (driver.Rows, error) { return s.stmt.(driver.StmtQueryContext).QueryContext(ctx, args) })
}

// CheckNamedValue implements [driver.NamedValueChecker].
func (s *guardedStmt) CheckNamedValue(v *driver.NamedValue) error {
	return s.g.call(func() error {
		if c, ok := s.stmt.(driver.NamedValueChecker); ok {
			return c.CheckNamedValue(v)
		}
		return s.g.conn.(driver.NamedValueChecker).CheckNamedValue(v)
	})
}

// guardedRows are the rows of a driver.
type guardedRows struct {
	g       *guardedConn
	rows    driver.Rows
	columns []string
}

var _ driver.RowsColumnTypeDatabaseTypeName = (*guardedRows)(nil)

// Columns implements [driver.Rows].
func (r *guardedRows) Columns() []string { return r.columns }

// ColumnTypeDatabaseTypeName implements [driver.RowsColumnTypeDatabaseTypeName].
func (r *guardedRows) ColumnTypeDatabaseTypeName(i int) (name string) {
	_ = r.g.call(func() error {
		if named, ok := r.rows.(driver.RowsColumnTypeDatabaseTypeName); ok {
			name = named.ColumnTypeDatabaseTypeName(i)
		}
		return nil
	})
	return name
}

// Next implements [driver.Rows]. The bounds are those of the statement.
func (r *guardedRows) Next(dest []driver.Value) error {
	if r.g.broken.Load() {
		return errDriverPanic
	}
	err := r.g.call(func() error { return r.rows.Next(dest) })
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}

// Close implements [driver.Rows]. A driver reads what is left of the answer: the bounds are those of the statement.
func (r *guardedRows) Close() error { return r.g.call(r.rows.Close) }
