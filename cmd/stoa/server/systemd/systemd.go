// Package systemd reports the state of the process to the service manager that started it.
package systemd

import (
	"fmt"
	"net"
	"os"
)

// States of the process (sd_notify(3)).
const (
	Ready    = "READY=1"    // it answers requests: with Type=notify, systemctl start returns now
	Stopping = "STOPPING=1" // it has begun to stop
)

// Notify sends state to the datagram socket that NOTIFY_SOCKET names: the path of a file, or the name of an abstract
// socket behind @, which package net knows by the same sign. It does nothing without the variable. It waits while the
// manager reads nothing and its queue is full.
func Notify(state string) error {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return nil
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer socket.Close()
	if _, err := socket.Write([]byte(state)); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
