package egress

import (
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// privateIPv4 and privateIPv6 are the ranges that [Options.PrivateNetwork] allows: loopback, private (RFC 1918, RFC
// 4193) and carrier-grade NAT (RFC 6598) addresses.
var (
	privateIPv4 = parsePrefixes("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
	privateIPv6 = parsePrefixes("::1/128", "fc00::/7")
)

// metadataAddresses are the addresses at which clouds give credentials to their machines, as far as they are in
// ranges that are allowed otherwise: Azure, Alibaba, AWS over IPv6. The usual 169.254.169.254 is link-local and
// refused with its range.
var metadataAddresses = parsePrefixes("168.63.129.16/32", "100.100.100.200/32", "fd00:ec2::/32")

// addressGuard decides whether a resolved address may be dialled. It is immutable.
type addressGuard struct {
	ssrf    *ssrf.Guardian    // refuses special-purpose ranges
	machine *machineAddresses // refused in any range; nil = allowed (PrivateNetwork)
}

// newAddressGuard returns the guard for public addresses, or with private also for those of private networks. Any
// port is allowed.
func newAddressGuard(private bool) addressGuard {
	if private {
		return addressGuard{ssrf: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(privateIPv4...), ssrf.WithAllowedV6Prefixes(privateIPv6...))}
	}
	return addressGuard{ssrf: ssrf.New(ssrf.WithAnyPort()), machine: newMachineAddresses()}
}

// checkDial is a [net.Dialer.Control] function. The dialer calls it for each resolved address, after resolving and
// before connecting: there is no time between the check and the connection in which the address could change.
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

// allowsAddress reports whether addr may be dialled. It removes the zone and unmaps IPv4-mapped IPv6 addresses, which
// would otherwise not match the ranges.
func (g addressGuard) allowsAddress(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	for _, p := range metadataAddresses {
		if p.Contains(addr) {
			return false
		}
	}
	return g.ssrf.SafeAddr(addr) == nil && (g.machine == nil || !g.machine.hasAddress(addr))
}

// isNumericHost reports whether host is a number that some resolvers read as an IPv4 address although it is not in
// dotted decimal notation: 2130706433, 0x7f.1, 0177.0.0.1, 127.1. Such a host is refused before it is resolved. As in
// the WHATWG URL standard the last label decides: no public name ends in a numeric label.
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

// parsePrefixes parses constant prefixes and panics on a mistake.
func parsePrefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
