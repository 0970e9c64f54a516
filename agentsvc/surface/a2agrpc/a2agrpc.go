// Package a2agrpc implements the official A2A protocol over gRPC (docs/api/grpc.md): the service
// lf.a2a.v1.A2AService of version 1.0 and a2a.v1.A2AService of version 0.3, together with gRPC's health and
// reflection services, on a port of their own.
//
// A call passes through these steps:
//
//  1. limitCallTime (calltime.go) bounds the time of every call and rejects compressed messages.
//  2. newCallHandler (call.go) presents the call to package surface as an HTTP request: its metadata are
//     the headers ([surface.Server.ServeNonHTTP]). Authentication, tenant, logging and metrics are those of
//     HTTP. This happens before the message is received: a caller with a bad credential cannot make the
//     server take one in.
//  3. callStream.RecvMsg reserves memory for the message, receives it (codec.go), checks what the protocol's
//     library would ignore (input.go, valuecount.go) and adapts what the library cannot decode (data.go, file.go).
//  4. The library decodes the message and calls a method of handler (handler.go, push.go), which authorizes
//     the caller and calls the task service. Package a2a converts to and from domain types.
//  5. Errors become gRPC statuses in status.go. A method stores its error in call.failure, since the library
//     would replace it with its own status.
//
// health.go reports readiness to load balancers. canonicalcard.go computes the bytes that a card's signature
// covers.
package a2agrpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
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
	"stoa/agentsvc/surface/agentcard"
	"stoa/agentsvc/surface/requestbody"
)

// Options configure a Server. The zero value is valid: each field has the default that its comment names.
type Options struct {
	TLS *tls.Config // nil = connections are not encrypted
	// AcquireCall counts a call of the client at an address with a port. It returns what ends the count, or false if
	// too many calls are open; nil = as many as there are.
	AcquireCall func(address string) (release func(), ok bool)
	// IsProxy reports whether an address with a port is that of a proxy, whose connections carry the calls of many
	// clients; nil = none is.
	IsProxy func(address string) bool
	// Ready returns an error while the process must not receive calls; nil = always ready.
	Ready func(context.Context) error
	// OnCall is called at the start of each call of an agent method. The drain uses it to see that load balancers
	// have stopped sending. nil = not called.
	OnCall         func()
	BlockFor       time.Duration     // how long a blocking call waits for its task; 0 = 5 minutes
	Cards          agentcard.Builder // builds the cards of agents
	SendTimeout    time.Duration     // how long a client may take to accept one message; 0 = 30 seconds
	ReceiveTimeout time.Duration     // how long a client may take to send one message; 0 = 2 minutes
	Log            *slog.Logger      // nil = slog.Default()
}

func (o *Options) setDefaults() {
	o.BlockFor = cmp.Or(o.BlockFor, 5*time.Minute)
	o.SendTimeout = cmp.Or(o.SendTimeout, 30*time.Second)
	o.ReceiveTimeout = cmp.Or(o.ReceiveTimeout, 2*time.Minute)
	if o.AcquireCall == nil {
		o.AcquireCall = func(string) (func(), bool) { return func() {}, true }
	}
	if o.IsProxy == nil {
		o.IsProxy = func(string) bool { return false }
	}
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

// Server is the gRPC server. All fields are set by New and then read-only.
type Server struct {
	options       Options
	surfaceServer *surface.Server // authenticates calls
	grpc          *grpc.Server
	health        *healthServer
	methods       map[string]bool // the full names of all methods
	// calls counts the handler goroutines. limitCallTime may return before its handler has; Close waits for all of
	// them.
	calls sync.WaitGroup
	// closing is closed by Close. It ends the calls of health and reflection, which would otherwise last as long as
	// their connections.
	closing       chan struct{}
	signalClosing func()        // closes closing; may be called more than once
	otherSlots    chan struct{} // holds a value for each reflection call in progress, at most maxOtherCalls
}

// The versions of the protocol; the same constants as in cards.
const (
	version10 = agentcard.A2A10
	version03 = agentcard.A2A03
)

// HTTP/2 flow control windows in bytes: how much a client may send before it is read, per call and per connection.
// They bound the memory of data that was received and not yet read.
const (
	streamWindow = 256 << 10
	connWindow   = 1 << 20
)

// Bounds of reflection calls. They need no credential, and gRPC receives their messages up to the size of an
// agent's message before the service sees them, so few may run at a time, and not for long.
const (
	maxOtherCalls    = 4
	maxOtherDuration = 30 * time.Second
)

// New returns a server whose calls are authenticated by front. It bounds messages, metadata, flow control windows
// and the concurrent calls of one connection, and it pings idle connections. A message of more than
// requestbody.MaxMessage bytes is refused by this package with an error of the protocol; one of more than twice that is
// refused by gRPC itself before it is received.
func New(front *surface.Server, o Options) *Server {
	o.setDefaults()
	s := &Server{options: o, surfaceServer: front, closing: make(chan struct{}), health: newHealthServer(o.Ready), methods: map[string]bool{}, otherSlots: make(chan struct{}, maxOtherCalls)}
	s.signalClosing = sync.OnceFunc(func() { close(s.closing) })
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(2 * requestbody.MaxMessage), grpc.MaxHeaderListSize(surface.MaxHeader), grpc.MaxConcurrentStreams(surface.MaxStreams),
		// ForceServerCodecV2 installs the codec that reserves memory before it decodes.
		grpc.ConnectionTimeout(10 * time.Second), grpc.ForceServerCodecV2(newCodec()), grpc.RPCDecompressor(rejectingDecompressor{"gzip"}), //nolint:staticcheck // nothing else hinders it
		// Explicit windows do not grow: gRPC would otherwise enlarge them with the measured bandwidth, and with
		// them the memory that one connection can hold.
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		// Idle connections are pinged after 30 seconds and closed 15 seconds later without an answer, so that a
		// client that disappeared does not keep its calls. Clients may ping every 10 seconds at most.
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 5 * time.Minute, Time: 30 * time.Second, Timeout: 15 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.StreamInterceptor(s.limitCallTime), grpc.InTapHandle(s.countUnknown),
	}
	if o.TLS != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(o.TLS.Clone())))
	}
	s.grpc = grpc.NewServer(options...)
	h := &handler{blockFor: o.BlockFor, cards: o.Cards}
	// Both services share one handler; call.version shows the methods which service was called.
	s.grpc.RegisterService(s.wrapService(&pb10.A2AService_ServiceDesc, version10), lib10.NewHandler(h))
	s.grpc.RegisterService(s.wrapService(&pb03.A2AService_ServiceDesc, version03), lib03.NewHandler(h))
	s.grpc.RegisterService(s.health.newServiceDesc(), s.health)
	reflection.Register(s.grpc)
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			s.methods["/"+service+"/"+m.Name] = true
		}
	}
	return s
}

// Serve accepts connections of l until the server is closed or stopped. It returns nil then, also if that happened before
// Serve was called: both run in goroutines of their own.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(boundedListener{l, s.options.IsProxy}); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop closes all connections and cancels all calls at once.
func (s *Server) Stop() { s.grpc.Stop() }

// Drain makes the health service report NOT_SERVING, so that load balancers send new calls elsewhere. Calls are
// still answered.
func (s *Server) Drain() { s.health.Shutdown() }

// Close shuts the server down gracefully: it accepts no new calls, lets those in progress finish, and returns when
// all have ended. When ctx ends it cancels the rest. Call it after [surface.Server.EndStreams], which ends the
// streams; otherwise streams last until ctx ends.
func (s *Server) Close(ctx context.Context) {
	s.Drain()
	s.signalClosing()
	// GracefulStop has no deadline of its own; Stop makes it return.
	stop := context.AfterFunc(ctx, s.grpc.Stop)
	s.grpc.GracefulStop()
	stop()
	// GracefulStop waits for limitCallTime, not for the handler goroutines that it started.
	s.calls.Wait()
}
