// Package listener opens the public TCP listeners of a process and bounds what its clients may have of them:
// connections and open requests, in total and by address ([Limiter]), and bytes that the kernel buffers for a client
// that does not read ([ListenTCP]).
package listener

import (
	"context"
	"net"
	"strconv"
)

// maxUnsentBytes bounds, in bytes, what the kernel buffers for a connection beyond the data that is in transit
// (TCP_NOTSENT_LOWAT). Without it the kernel accepts megabytes for a client that does not read: memory per
// connection, and events that were encoded although the client may never read them. With it a slow client blocks its
// writer early, so that the surface's write timeout can end the connection.
const maxUnsentBytes = 128 << 10

// ListenTCP opens a public TCP listener with the bound maxUnsentBytes on every accepted connection.
func ListenTCP(host string, port int) (net.Listener, error) {
	c := net.ListenConfig{Control: boundUnsent}
	// Connections of a multipath listener do not inherit the bound.
	c.SetMultipathTCP(false)
	return c.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
}
