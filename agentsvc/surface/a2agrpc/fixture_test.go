package a2agrpc_test

import (
	"cmp"
	"context"
	"net"
	"testing"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	lib03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	lib10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture serves [surfacetest.Script] as the default app and as the apps acme and globex over HTTP and gRPC.
type fixture struct {
	*surfacetest.Fixture
	server  *a2agrpc.Server
	address string
	conn    *grpc.ClientConn
}

func newFixture(t *testing.T, so surface.Options, o a2agrpc.Options) *fixture {
	t.Helper()
	return newFixtureWith(t, surfacetest.Script, so, o)
}

func newFixtureWith(t *testing.T, own string, so surface.Options, o a2agrpc.Options) *fixture {
	t.Helper()
	l := listenLocal(t)
	o.Cards.GRPC.Address = cmp.Or(o.Cards.GRPC.Address, l.Addr().String())
	h := surfacetest.NewScripted(t, surfacetest.Options{Default: own, Surface: so}, func(*surfacetest.Fixture) []surface.Route { return a2a.Routes(a2a.Options{Cards: o.Cards}) })
	return serveGRPC(t, h, l, o)
}

func listenLocal(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveGRPC adds a gRPC server to a fixture until the end of the test.
func serveGRPC(t testing.TB, server *surfacetest.Fixture, l net.Listener, o a2agrpc.Options) *fixture {
	t.Helper()
	h := &fixture{Fixture: server, server: a2agrpc.New(server.Server, o), address: l.Addr().String()}
	ended := make(chan error, 1)
	go func() { ended <- h.server.Serve(l) }()
	t.Cleanup(func() {
		h.Server.EndStreams()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		h.server.Close(ctx)
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	h.conn = h.dialServer(t)
	return h
}

func (f *fixture) dialServer(t testing.TB, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(f.address, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (f *fixture) mintToken(t *testing.T, app, sub string) string {
	t.Helper()
	return f.MintToken(t, app, authz.TokenSpec{Subject: sub, Roles: []string{"caller", "approver"}, Scope: "agents:read agents:call tasks:approve"})
}

// bearerCredentials sends a bearer token with every call.
type bearerCredentials string

func (b bearerCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

func (bearerCredentials) RequireTransportSecurity() bool { return false }

// withCredentials returns a context whose calls have a bearer token and the metadata agent-name.
func withCredentials(ctx context.Context, token, agent string) context.Context {
	if agent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "agent-name", agent)
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

// versions are the versions of the protocol with their official clients.
var versions = []struct {
	name    spec.ProtocolVersion
	service string
}{{"1.0", "lf.a2a.v1.A2AService"}, {"0.3", "a2a.v1.A2AService"}}

// newClient returns the official client of a version; tenant is the field tenant of its calls, which version 0.3
// does not have.
func (f *fixture) newClient(t *testing.T, version spec.ProtocolVersion, token, tenant string) *a2aclient.Client {
	t.Helper()
	dial := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(bearerCredentials(token))}
	at := &spec.AgentInterface{URL: f.address, ProtocolBinding: spec.TransportProtocolGRPC, ProtocolVersion: version, Tenant: tenant}
	c, err := a2aclient.NewFromEndpoints(t.Context(), []*spec.AgentInterface{at}, lib10.WithGRPCTransport(dial...), lib03.WithGRPCTransport(dial...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Destroy() })
	return c
}
