package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// machineAddressTTL is how long the addresses of the machine are remembered: one that is added is refused at the latest after that.
const machineAddressTTL = 2 * time.Second

// machineAddresses knows the addresses of this machine's interfaces, public ones included: what listens at them was often meant for
// this machine or its network alone, and a connection from here passes no firewall on its way. It is safe for concurrent use. An
// address that a router or a cloud translates into one of these is not among them.
type machineAddresses struct {
	listAddresses func() ([]net.Addr, error)

	mu     sync.Mutex
	known  map[netip.Addr]bool
	expiry time.Time // when they are read again
}

func newMachineAddresses() *machineAddresses {
	return &machineAddresses{listAddresses: net.InterfaceAddrs}
}

// hasAddress reports whether addr, without a zone and unmapped, is of this machine. Where the system does not list its addresses (a process
// that may not open netlink sockets), it is asked whether one can listen at addr.
func (o *machineAddresses) hasAddress(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.After(o.expiry) {
		list, err := o.listAddresses()
		if err != nil {
			return canListen(addr)
		}
		o.known, o.expiry = map[netip.Addr]bool{}, now.Add(machineAddressTTL)
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					o.known[ip.Unmap()] = true
				}
			}
		}
	}
	return o.known[addr]
}

// canListen reports whether a socket of this machine can have the address.
func canListen(addr netip.Addr) bool {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
