package deploytest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// freePort returns a port of loopback between 20000 and 32000 at which nothing listens. The kernel gives ports outside this
// range to clients, so that none takes it meanwhile.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(12000)
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
