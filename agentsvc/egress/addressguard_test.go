package egress

import (
	"net/netip"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Parallel()
	tests := []struct {
		address         string
		public, private bool // allowed without and with PrivateNetwork
	}{
		{"93.184.216.34", true, true},
		{"2606:2800:220:1:248:1893:25c8:1946", true, true},
		{"::ffff:93.184.216.34", true, true},
		{"127.0.0.1", false, true},
		{"127.9.9.9", false, true},
		{"::1", false, true},
		{"10.1.2.3", false, true},
		{"172.31.0.1", false, true},
		{"192.168.1.1", false, true},
		{"100.64.0.1", false, true},
		{"fd12:3456::1", false, true},
		{"::ffff:10.0.0.1", false, true},
		{"0.0.0.0", false, false},
		{"::", false, false},
		{"169.254.169.254", false, false},
		{"::ffff:169.254.169.254", false, false},
		{"fe80::1", false, false},
		{"fe80::1%lo", false, false},
		{"168.63.129.16", false, false},
		{"100.100.100.200", false, false},
		{"fd00:ec2::254", false, false},
		{"192.0.0.192", false, false},
		{"::127.0.0.1", false, false},        // IPv4-compatible
		{"64:ff9b::7f00:1", false, false},    // NAT64
		{"64:ff9b:1::7f00:1", false, false},  // local NAT64
		{"2002:7f00:1::", false, false},      // 6to4
		{"2001:0:7f00:1::", false, false},    // Teredo
		{"::ffff:0:127.0.0.1", false, false}, // IPv4-translated
		{"255.255.255.255", false, false},
		{"224.0.0.1", false, false},
		{"ff02::1", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.address, func(t *testing.T) {
			t.Parallel()
			addr := netip.MustParseAddr(tt.address)
			if got := newAddressGuard(false).allowsAddress(addr); got != tt.public {
				t.Errorf("public only: allows = %v, want %v", got, tt.public)
			}
			if got := newAddressGuard(true).allowsAddress(addr); got != tt.private {
				t.Errorf("private network: allows = %v, want %v", got, tt.private)
			}
		})
	}
}

func TestGuardNetworks(t *testing.T) {
	t.Parallel()
	g := newAddressGuard(true)
	for _, network := range []string{"udp4", "unix", "ip4", ""} {
		if err := g.checkDial(network, "93.184.216.34:80", nil); err == nil {
			t.Errorf("network %q is allowed", network)
		}
	}
	if err := g.checkDial("tcp4", "no address", nil); err == nil {
		t.Error("an address that cannot be read is allowed")
	}
}

func TestNumericHost(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{
		"2130706433": true, "0x7f000001": true, "0X7F.1": true, "0177.0.0.1": true, "127.1": true, "127.0.0.1.": true,
		"017700000001": true, "1.2.3.4.5": true, "0x": true, "127.0.0.0x1": true,
		"127.0.0.1": false, "::1": false, "fe80::1%lo": false, "example.com": false, "example.com.": false,
		"4chan.example": false, "1.2.3.example": false, "": false, "0xabg": false,
	}
	for host, want := range tests {
		if got := isNumericHost(host); got != want {
			t.Errorf("oddNumber(%q) = %v, want %v", host, got, want)
		}
	}
}
