package main

import (
	"context"
	"net"
	"strconv"
)

// maxUnsentBytes bounds what waits in the system's buffer of a connection, in bytes, beyond what is on its way. Without a bound
// the system takes in megabytes for a client who does not read: memory, and work that nobody has use for.
const maxUnsentBytes = 128 << 10

// listenTCP opens a port of the house.
func listenTCP(host string, port int) (net.Listener, error) {
	c := net.ListenConfig{Control: boundUnsent}
	c.SetMultipathTCP(false) // whose connections do not inherit the bound
	return c.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}
