package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// A thread for each connection, or a goroutine, is woken for each answer, and the machine's processors are the server's as
// well. One thread that asks the kernel which answers are there takes half of the time.

// driveAll is drive of all clients in one thread. A call that fails ends the run.
func driveAll(ctx context.Context, clients []*Client, targets []Target, more func() bool) (Result, error) {
	r := empty()
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return r, fmt.Errorf("epoll: %w", err)
	}
	defer func() { _ = syscall.Close(poll) }()
	began := make([]time.Time, len(clients))
	under := 0
	next := func(i int) {
		if r.Err != nil || !more() {
			return
		}
		at, err := clients[i].send(targets[i%len(targets)])
		if err != nil {
			r.count(Timing{}, err)
			return
		}
		began[i] = at
		under++
	}
	for i, c := range clients {
		w, err := take(c.conn)
		if err != nil {
			return r, err
		}
		c.conn = w
		c.in.Reset(w)
		if err := syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, w.fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}); err != nil {
			return r, fmt.Errorf("epoll: %w", err)
		}
	}
	for i := range clients {
		next(i)
	}
	ready := make([]syscall.EpollEvent, len(clients))
	for heard := time.Now(); under > 0; {
		n, err := syscall.EpollWait(poll, ready, 1000)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return r, fmt.Errorf("epoll: %w", err)
		case ctx.Err() != nil:
			return r, ctx.Err()
		case n > 0:
			heard = time.Now()
		case time.Since(heard) > callTimeout:
			r.count(Timing{}, errLate)
			return r, nil
		}
		for _, ev := range ready[:max(n, 0)] {
			i := int(ev.Fd)
			r.count(clients[i].receive(targets[i%len(targets)], began[i]))
			under--
			next(i)
		}
	}
	return r, nil
}

var errLate = fmt.Errorf("no answer within %v", callTimeout)

// wire is a connection that the runtime knows nothing of.
type wire struct {
	net.Conn // closed
	fd       int
}

// take takes a connection from the runtime.
func take(conn net.Conn) (*wire, error) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take the connection: %w", err)
	}
	fd := -1
	var failed error
	err = raw.Control(func(of uintptr) { fd, failed = syscall.Dup(int(of)) })
	if err = errors.Join(err, failed, conn.Close()); err != nil {
		return nil, fmt.Errorf("take the connection: %w", err)
	}
	return &wire{conn, fd}, nil
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.retry(func() (int, error) { return syscall.Read(w.fd, p) })
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return max(n, 0), err
}

func (w *wire) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var k int
		k, err = w.retry(func() (int, error) { return syscall.Write(w.fd, p[n:]) })
		n += max(k, 0)
	}
	return n, err
}

// retry does what the kernel may put off: little is sent, and what is read has begun to come.
func (w *wire) retry(do func() (int, error)) (int, error) {
	for end := time.Now().Add(callTimeout); ; {
		n, err := do()
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) || time.Now().After(end) {
			return n, err
		}
	}
}

// SetDeadline does nothing: the loop has its own.
func (w *wire) SetDeadline(time.Time) error { return nil }

func (w *wire) Close() error { return syscall.Close(w.fd) }
