package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// A thread for each connection, or a goroutine, is woken for each answer, and the machine's processors are the server's as
// well. One thread that asks the kernel which answers are there takes less of them.

// lull (docs/decisions/bench-load-pauses.md) is how long it sleeps before it asks, where there are several connections;
// the kernel's own slack makes it some 120 µs. Across a network, a card gathers answers for about as long before it
// interrupts. Without it, one thread of the server gets the next call as soon as it has answered one, and goes on with
// the few connections that it has so: Go's scheduler takes calls from the network before it takes those that wait for
// another thread, which the kernel may have stopped for 4 ms.
const lull = 50 * time.Microsecond

// An answer has come when the kernel has received all of it: how long it lies there is the load's doing.

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
	wires := make([]*wire, len(clients))
	for i, c := range clients {
		if wires[i], err = take(c.conn); err != nil {
			return r, err
		}
		c.conn = wires[i]
		if err := syscall.EpollCtl(poll, syscall.EPOLL_CTL_ADD, wires[i].fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(i)}); err != nil {
			return r, fmt.Errorf("epoll: %w", err)
		}
	}
	for i := range clients {
		next(i)
	}
	ready := make([]syscall.EpollEvent, len(clients))
	sleep := syscall.NsecToTimespec(lull.Nanoseconds())
	for heard := time.Now(); under > 0; {
		if len(clients) > 1 {
			_ = syscall.Nanosleep(&sleep, nil) // cut short it does as well
		}
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
			if !wires[i].fill() {
				continue // the rest is under way
			}
			clients[i].in.Reset(wires[i])
			timing, err := clients[i].receive(targets[i%len(targets)], began[i])
			timing.Whole = wires[i].came.Sub(began[i])
			r.count(timing, err)
			under--
			next(i)
		}
	}
	return r, nil
}

var errLate = fmt.Errorf("no answer within %v", callTimeout)

// wire is a connection that the runtime knows nothing of. What it has received of an answer is read at once, when all
// of it is there: who waits for the rest of one answer keeps the others waiting.
type wire struct {
	net.Conn // closed
	fd       int
	came     time.Time // when the kernel received the last part
	stamp    [64]byte
	got      []byte
	need     int // how long the answer is, 0 = that is not known yet
	read     int // of got
	head     *bufio.Reader
	data     bytes.Reader
}

// take takes a connection from the runtime.
func take(conn net.Conn) (*wire, error) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("take the connection: %w", err)
	}
	fd := -1
	var failed error
	err = raw.Control(func(of uintptr) {
		if fd, failed = syscall.Dup(int(of)); failed == nil {
			failed = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
		}
	})
	if err = errors.Join(err, failed, conn.Close()); err != nil {
		return nil, fmt.Errorf("take the connection: %w", err)
	}
	return &wire{Conn: conn, fd: fd, head: bufio.NewReader(nil)}, nil
}

// fill receives what is there, and reports whether that is an answer, or the end of the connection.
func (w *wire) fill() bool {
	for {
		w.got = slices.Grow(w.got, 16<<10)
		n, stamped, _, _, err := syscall.Recvmsg(w.fd, w.got[len(w.got):cap(w.got)], w.stamp[:], 0)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return false
		case n <= 0:
			return true
		}
		w.got = w.got[:len(w.got)+n]
		w.came = time.Now()
		if at := syscall.CmsgLen(0); stamped >= at+16 { // seconds and nanoseconds
			w.came = time.Unix(int64(binary.NativeEndian.Uint64(w.stamp[at:])), int64(binary.NativeEndian.Uint64(w.stamp[at+8:])))
		}
		if w.whole() {
			return true
		}
	}
}

// whole reports whether w has received an answer.
func (w *wire) whole() bool {
	if w.need == 0 {
		at := bytes.Index(w.got, []byte("\r\n\r\n"))
		if at < 0 {
			return false
		}
		w.data.Reset(w.got)
		w.head.Reset(&w.data)
		h, err := readHead(w.head)
		switch {
		case err != nil:
			return true
		case h.length < 0:
			return bytes.HasSuffix(w.got, []byte("\r\n0\r\n\r\n"))
		}
		w.need = at + 4 + int(h.length)
	}
	return len(w.got) >= w.need
}

func (w *wire) Read(p []byte) (int, error) {
	if w.read == len(w.got) {
		return 0, io.EOF
	}
	n := copy(p, w.got[w.read:])
	w.read += n
	return n, nil
}

// Write sends a call, and forgets the answer to the one before.
func (w *wire) Write(p []byte) (n int, err error) {
	w.got, w.need, w.read = w.got[:0], 0, 0
	for n < len(p) {
		k, err := syscall.Write(w.fd, p[n:])
		if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
			return n, err
		}
		n += max(k, 0)
	}
	return n, nil
}

// SetDeadline does nothing: the loop has its own.
func (w *wire) SetDeadline(time.Time) error { return nil }

func (w *wire) Close() error { return syscall.Close(w.fd) }
