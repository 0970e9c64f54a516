package surface_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLongAnswer: a long answer leaves whole, in as few segments as the network allows, and so do those after it.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	h, _ := house(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	info := func() (got *unix.TCPInfo) {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { got, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) })
		}
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	in := bufio.NewReader(conn)
	for range 5 {
		before := info()
		fmt.Fprint(conn, "GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n")
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || len(body) != 30_003 {
			t.Fatalf("%d bytes and %v, want 30,003", len(body), err)
		}
		after := info()
		segments, bytes := after.Data_segs_in-before.Data_segs_in, after.Bytes_received-before.Bytes_received
		if most := uint32(bytes)/after.Advmss + 1; segments > most {
			t.Errorf("%d bytes came in %d segments of %d, want %d", bytes, segments, after.Advmss, most)
		}
	}
}
