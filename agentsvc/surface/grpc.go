package surface

import "net"

// GRPC is how the agents of a server are called over gRPC, as cards tell it.
type GRPC struct {
	Address   string // host and port as clients dial it, "" = they are not
	Preferred bool   // to JSON over HTTP
}

const bindingGRPC = "GRPC"

// PrefersGRPC reports whether callers are to choose gRPC where they can.
func (v *Request) PrefersGRPC() bool {
	return v.server.options.GRPC.Address != "" && v.server.options.GRPC.Preferred
}

// withGRPCInterfaces returns over with the ways to call an agent over gRPC, before or behind them. A client of 1.0 says in each call whom it
// is for, as the interface tells it; one of 0.3 does not, and reaches the agent that stands for the app.
func (v *Request) withGRPCInterfaces(agent string, over []Interface) []Interface {
	at := v.server.options.GRPC.Address
	if at == "" {
		return over
	}
	if host := v.address.Host; host != "" {
		if _, port, err := net.SplitHostPort(at); err == nil {
			at = net.JoinHostPort(host, port)
		}
	}
	by := []Interface{{at, bindingGRPC, A2A10, v.App.Name + "/" + agent}}
	if c, ok := v.runtime.DefaultCard(); ok && c.Agent == agent {
		by = append(by, Interface{at, bindingGRPC, A2A03, ""})
	}
	if v.PrefersGRPC() {
		return append(by, over...)
	}
	return append(over, by...)
}
