package listener

import (
	"errors"
	"io/fs"
	"syscall"
)

// Address is where a process listens, and what its operator sets to change that.
type Address struct {
	// Name is what is served there, for messages.
	Name string
	// Address is a host and a port.
	Address string
	// PortSetting and HostSetting are the flag and the variable that choose them, for messages.
	PortSetting, HostSetting string
}

// Advise returns what to do about the error of listening at the address.
func (a Address) Advise(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program listens there: stop it, or choose another with " + a.PortSetting
	case errors.Is(err, fs.ErrPermission):
		// The names of the settings are those of a unit of systemd (docs/operations/install.md).
		return "a port below 1024 needs the capability CAP_NET_BIND_SERVICE: give it to the process, with systemd in a drop-in with " +
			"AmbientCapabilities=CAP_NET_BIND_SERVICE and CapabilityBoundingSet=CAP_NET_BIND_SERVICE, or choose a higher port with " + a.PortSetting
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "name an address of this machine with " + a.HostSetting
	}
	return "correct " + a.HostSetting
}
