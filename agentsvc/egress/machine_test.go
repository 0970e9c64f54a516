package egress

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestMachineAddresses checks that public addresses of this machine are refused, and allowed with PrivateNetwork.
func TestMachineAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reads, fails := 0, false
		has := []string{"93.184.215.14/24", "2606:2800:220:1::1/64"}
		machine := &machineAddresses{listAddresses: func() (list []net.Addr, err error) {
			if reads++; fails {
				return nil, errors.New("no netlink here")
			}
			for _, text := range has {
				ip, n, err := net.ParseCIDR(text)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, &net.IPNet{IP: ip, Mask: n.Mask})
			}
			return list, nil
		}}
		outside, inside := newAddressGuard(false), newAddressGuard(true)
		outside.machine = machine
		checkAddress := func(address string, public, private bool) {
			t.Helper()
			addr := netip.MustParseAddr(address)
			if got := outside.allowsAddress(addr); got != public {
				t.Errorf("%s outside: %v, want %v", address, got, public)
			}
			if got := inside.allowsAddress(addr); got != private {
				t.Errorf("%s inside: %v, want %v", address, got, private)
			}
		}
		checkAddress("93.184.215.14", false, true)
		checkAddress("::ffff:93.184.215.14", false, true)
		checkAddress("2606:2800:220:1::1", false, true)
		checkAddress("93.184.215.15", true, true) // the next address belongs to another machine
		checkAddress("2606:2800:220:1::2", true, true)
		if reads != 1 {
			t.Errorf("the addresses were read %d times within a moment", reads)
		}
		has = append(has, "93.184.215.15/24")
		checkAddress("93.184.215.15", true, true) // the cached list is not yet expired
		time.Sleep(machineAddressTTL + 1)
		checkAddress("93.184.215.15", false, true)
		fails = true
		time.Sleep(machineAddressTTL + 1)
		checkAddress("93.184.215.15", true, true) // no socket can be bound to it
	})
}

// TestMachineAddressUnlisted checks that each address is tried if the system does not list its addresses.
func TestMachineAddressUnlisted(t *testing.T) {
	t.Parallel()
	machine := &machineAddresses{listAddresses: func() ([]net.Addr, error) { return nil, errors.New("no netlink here") }}
	for address, want := range map[string]bool{"127.0.0.1": true, "93.184.215.14": false} {
		if got := machine.hasAddress(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}

// TestInterfaces checks that every address that the system lists is recognised.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	list, err := net.InterfaceAddrs()
	if err != nil || len(list) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	machine := newMachineAddresses()
	for _, a := range list {
		if p := netip.MustParsePrefix(a.String()); !machine.hasAddress(p.Addr().Unmap()) {
			t.Errorf("%s is not known to be of this machine", p)
		}
	}
}
