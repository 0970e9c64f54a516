package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// ownAge is how long the addresses of the machine are remembered: one that is added is refused at the latest after that.
const ownAge = 2 * time.Second

// ownAddresses knows the addresses of this machine's interfaces, public ones included: what listens at them was often meant for
// this machine or its network alone, and a connection from here passes no firewall on its way. It is safe for concurrent use. An
// address that a router or a cloud translates into one of these is not among them.
type ownAddresses struct {
	list func() ([]net.Addr, error)

	mu    sync.Mutex
	known map[netip.Addr]bool
	until time.Time // when they are read again
}

func newOwnAddresses() *ownAddresses { return &ownAddresses{list: net.InterfaceAddrs} }

// has reports whether addr, without a zone and unmapped, is of this machine. Where the system does not list its addresses (a process
// that may not open netlink sockets), it is asked whether one can listen at addr.
func (o *ownAddresses) has(addr netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.After(o.until) {
		list, err := o.list()
		if err != nil {
			return listens(addr)
		}
		o.known, o.until = map[netip.Addr]bool{}, now.Add(ownAge)
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

// listens reports whether a socket of this machine can have the address.
func listens(addr netip.Addr) bool {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
