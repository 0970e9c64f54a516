package egress

import (
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// Inside addresses that [Options.PrivateNetwork] opens.
var (
	privateIPv4 = parsePrefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
	privateIPv6 = parsePrefixes("::1/128", "fc00::/7")
)

// metadataAddresses are the addresses at which clouds hand credentials to their machines, wherever they lie in ranges that
// may otherwise be reached: Azure, Alibaba, AWS.
var metadataAddresses = parsePrefixes("168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::/32")

// addressGuard decides about an address once it is known.
type addressGuard struct {
	ssrf    *ssrf.Guardian
	machine *machineAddresses // refused whatever range they lie in; nil = they are allowed
}

func newAddressGuard(private bool) addressGuard {
	if private {
		return addressGuard{ssrf: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(privateIPv4...), ssrf.WithAllowedV6Prefixes(privateIPv6...))}
	}
	return addressGuard{ssrf: ssrf.New(ssrf.WithAnyPort()), machine: newMachineAddresses()}
}

// checkDial has the signature of [net.Dialer.Control]: it runs after the name was resolved, before the connection is made.
func (g addressGuard) checkDial(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return errAddressRefused
	}
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !g.allowsAddress(ap.Addr()) {
		return errAddressRefused
	}
	return nil
}

func (g addressGuard) allowsAddress(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	for _, p := range metadataAddresses {
		if p.Contains(addr) {
			return false
		}
	}
	return g.ssrf.SafeAddr(addr) == nil && (g.machine == nil || !g.machine.hasAddress(addr))
}

// isNumericHost reports whether host is a number that some resolvers read as an IPv4 address although it is not written
// as one: 2130706433, 0x7f.1, 0177.0.0.1, 127.1. Such hosts are refused before anybody resolves them.
func isNumericHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		_, err := strconv.ParseUint("0"+hex, 16, 64)
		return err == nil
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

func parsePrefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
