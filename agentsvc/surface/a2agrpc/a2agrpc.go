// Package a2agrpc is the official A2A protocol over gRPC: the service lf.a2a.v1.A2AService of version 1.0 and
// a2a.v1.A2AService of version 0.3, beside gRPC's own health and reflection, on a port of their own.
//
// A call passes the same front door as a request over HTTP ([surface.Server.Carry]): what stands in its metadata is what stands in
// headers there. call.go takes it through, before anything of its message is received; input.go checks what the protocol's
// library lets pass; handler.go carries out what the library has decoded, and package a2a makes its words ours and back; data.go
// and file.go hold what the library would not take as clients send it; status.go makes errors gRPC's. calltime.go ends calls whose
// client neither gives nor takes, health.go tells balancers how the process is.
package a2agrpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"time"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	lib03 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	lib10 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"stoa/agentsvc/surface"
)

// Options tune a server. The zero value works.
type Options struct {
	TLS            *tls.Config                 // nil = nothing is encrypted here
	Ready          func(context.Context) error // whether calls may come; nil = always
	OnCall         func()                      // called when a call of an agent comes
	BlockFor       time.Duration               // how long a blocking call waits for its task; 5 minutes
	SendTimeout    time.Duration               // how long a client may take to accept a message; 30 seconds
	ReceiveTimeout time.Duration               // how long it may take to send one; 2 minutes
	Log            *slog.Logger
}

func (o *Options) setDefaults() {
	o.BlockFor = cmp.Or(o.BlockFor, 5*time.Minute)
	o.SendTimeout = cmp.Or(o.SendTimeout, 30*time.Second)
	o.ReceiveTimeout = cmp.Or(o.ReceiveTimeout, 2*time.Minute)
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	if o.OnCall == nil {
		o.OnCall = func() {}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
}

// Server answers gRPC.
type Server struct {
	options       Options
	surfaceServer *surface.Server
	grpc          *grpc.Server
	health        *healthServer
	calls         sync.WaitGroup // under way
	closing       chan struct{}  // closed when those end that wait for nothing
	signalClosing func()         // closes it, once
	otherSlots    chan struct{}  // places for calls of services that are not agents' and read what they are sent
}

const (
	version10 = surface.A2A10
	version03 = surface.A2A03
)

// How many bytes a client may send ahead of what is read, in one call and on one connection.
const (
	streamWindow = 256 << 10
	connWindow   = 1 << 20
)

// Anybody may ask which methods there are (reflection), and gRPC receives what they send up to the size of a message: so few may ask at
// a time, and for so long.
const (
	maxOtherCalls    = 4
	maxOtherDuration = 30 * time.Second
)

// New returns a server whose calls enter by front. It bounds messages, metadata and how much one connection may ask for at a
// time, and asks connections that say nothing whether they are still there. Of a message that is beyond twice the bound gRPC itself
// tells, in its own words; it is not received.
func New(front *surface.Server, o Options) *Server {
	o.setDefaults()
	s := &Server{options: o, surfaceServer: front, closing: make(chan struct{}), health: newHealthServer(o.Ready), otherSlots: make(chan struct{}, maxOtherCalls)}
	s.signalClosing = sync.OnceFunc(func() { close(s.closing) })
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(2 * surface.MaxMessage), grpc.MaxHeaderListSize(surface.MaxHeader), grpc.MaxConcurrentStreams(surface.MaxStreams),
		grpc.ConnectionTimeout(10 * time.Second), grpc.ForceServerCodecV2(newCodec()), grpc.RPCDecompressor(rejectingDecompressor{"gzip"}), //nolint:staticcheck // nothing else hinders it
		// Windows that do not grow: what a connection has sent and nobody has read yet is bounded by them.
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute, Time: 30 * time.Second, Timeout: 15 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.StreamInterceptor(s.limitCallTime),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS.Clone())))
	}
	s.grpc = grpc.NewServer(options...)
	h := &handler{blockFor: o.BlockFor}
	s.grpc.RegisterService(s.wrapService(&pb10.A2AService_ServiceDesc, version10), lib10.NewHandler(h))
	s.grpc.RegisterService(s.wrapService(&pb03.A2AService_ServiceDesc, version03), lib03.NewHandler(h))
	s.grpc.RegisterService(s.health.newServiceDesc(), s.health)
	reflection.Register(s.grpc)
	return s
}

// MethodNames lists the full names of the methods of agents that are answered.
func MethodNames() (names []string) {
	for _, d := range []grpc.ServiceDesc{pb10.A2AService_ServiceDesc, pb03.A2AService_ServiceDesc} {
		for _, m := range d.Methods {
			names = append(names, "/"+d.ServiceName+"/"+m.MethodName)
		}
		for _, m := range d.Streams {
			names = append(names, "/"+d.ServiceName+"/"+m.StreamName)
		}
	}
	return names
}

// Serve answers what comes in at l until the server is closed.
func (s *Server) Serve(l net.Listener) error { return s.grpc.Serve(l) }

// Stop ends everything at once.
func (s *Server) Stop() { s.grpc.Stop() }

// Drain tells those who ask that calls should go elsewhere. Calls are still answered.
func (s *Server) Drain() { s.health.Shutdown() }

// Close lets connections go: they begin no more calls, and those under way end by themselves, at ctx's end at the latest. It
// waits for them, and is called after [surface.Server.EndStreams], which has streams end.
func (s *Server) Close(ctx context.Context) {
	s.Drain()
	s.signalClosing()
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	s.grpc.GracefulStop()
	stop()
	s.calls.Wait()
}
