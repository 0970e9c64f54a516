package egress

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// machineAddressTTL is how long the list of this machine's addresses is cached. An address that is added to an
// interface is refused after this time at the latest.
const machineAddressTTL = 2 * time.Second

// machineAddresses is the set of addresses of this machine's interfaces, public ones included. A public address of
// this machine must be refused, too: a connection from the machine to itself passes no firewall, and services that
// listen there are often meant for the machine or its network alone. It is safe for concurrent use. A public address
// that a router or a cloud translates to one of these (NAT) is not in the set.
type machineAddresses struct {
	listAddresses func() ([]net.Addr, error) // net.InterfaceAddrs; tests replace it

	// mu guards the fields below.
	mu     sync.Mutex
	known  map[netip.Addr]bool // unmapped addresses without zones
	expiry time.Time           // when known is read again
}

// newMachineAddresses returns the addresses of this machine. They are read at the first use.
func newMachineAddresses() *machineAddresses {
	return &machineAddresses{listAddresses: net.InterfaceAddrs}
}

// hasAddress reports whether addr, which must be unmapped and without a zone, is an address of this machine. If the
// system does not list its addresses (a process that may not open netlink sockets), it tries to listen at addr
// instead.
func (m *machineAddresses) hasAddress(addr netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now.After(m.expiry) {
		list, err := m.listAddresses()
		if err != nil {
			return canListen(addr)
		}
		m.known, m.expiry = map[netip.Addr]bool{}, now.Add(machineAddressTTL)
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok {
				if ip, ok := netip.AddrFromSlice(n.IP); ok {
					m.known[ip.Unmap()] = true
				}
			}
		}
	}
	return m.known[addr]
}

// canListen reports whether a UDP socket of this machine can be bound to addr. Nothing is sent.
func canListen(addr netip.Addr) bool {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
