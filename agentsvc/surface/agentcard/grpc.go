package agentcard

import (
	"net"

	"stoa/agentsvc/surface"
)

// GRPC is the gRPC interface of a server, as agent cards advertise it.
type GRPC struct {
	// Address is the host and port at which clients reach it, "" = it is not advertised.
	Address string
	// Preferred lists it before JSON over HTTP.
	Preferred bool
}

const bindingGRPC = "GRPC"

// PrefersGRPC reports whether cards list gRPC first.
func (b Builder) PrefersGRPC() bool {
	return b.GRPC.Address != "" && b.GRPC.Preferred
}

// withGRPCInterfaces returns over with the gRPC interfaces of an agent before or after it. All agents share one
// address. Clients of version 1.0 name the agent by the tenant of each call; those of 0.3 cannot, so only the app's
// default agent has an interface for them. If apps have hosts of their own, the app's host replaces the one of the
// address.
func (b Builder) withGRPCInterfaces(v *surface.Request, agent string, over []Interface) []Interface {
	at := b.GRPC.Address
	if at == "" {
		return over
	}
	if host := v.Host(); host != "" {
		if _, port, err := net.SplitHostPort(at); err == nil {
			at = net.JoinHostPort(host, port)
		}
	}
	by := []Interface{{at, bindingGRPC, A2A10, v.App.Name + "/" + agent}}
	if c, ok := v.Runtime.DefaultCard(); ok && c.Agent == agent {
		by = append(by, Interface{at, bindingGRPC, A2A03, ""})
	}
	if b.PrefersGRPC() {
		return append(by, over...)
	}
	return append(over, by...)
}
