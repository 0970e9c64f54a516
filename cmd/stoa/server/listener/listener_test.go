//go:build linux

package listener

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestUnsent checks that the kernel buffers little for a client that does not read.
func TestUnsent(t *testing.T) {
	t.Parallel()
	l, err := ListenTCP("127.0.0.1", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	small := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
	}}
	client, err := small.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	n, err := conn.Write(make([]byte, 16<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a write without a reader: %v", err)
	}
	if n > 4*maxUnsentBytes {
		t.Errorf("the system took in %d bytes for a client who reads nothing, the bound is %d", n, maxUnsentBytes)
	}
}
