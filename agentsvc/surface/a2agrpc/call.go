package a2agrpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	pb03 "github.com/a2aproject/a2a-go/a2apb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2a"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/requestbody"
)

// call is one call of an agent method in progress. newCallHandler creates it; methods find it in their context,
// because the library's interface has no parameter for it. It belongs to the goroutine that runs the method.
type call struct {
	httpRequest *http.Request // the call's metadata as HTTP headers
	request     *surface.Request
	version     string // version10 or version03
	tenant      string // field tenant of the message, set by RecvMsg; "" in version 0.3
	// invalid is what checkInput found wrong with the message; set by RecvMsg. Methods return it only after the
	// caller is authorized.
	invalid error
	// failure is the error of the method or of RecvMsg, set by recordFailure. The library converts the errors that
	// pass through it and would lose their code and details.
	failure         error
	endsWhenSettled bool // the stream ends when the task needs input; set by streamEvents
}

// callKey is the context key of the call. grpc passes to a method nothing but the context and the message.
type callKey struct{}

// callFrom returns the call of a method's context. It is never nil there, since only newCallHandler calls methods.
func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// recordFailure stores err for toCallError, with the field names of the protocol, and returns err.
func (c *call) recordFailure(err error) error {
	c.failure = a2a.RespellField(err)
	return err
}

// wrapService returns d with every method wrapped by newCallHandler, so that a call is authenticated before its
// message is received.
func (s *Server) wrapService(d *grpc.ServiceDesc, version string) *grpc.ServiceDesc {
	return toStreamService(d, func(name string, run grpc.StreamHandler) grpc.StreamHandler {
		return s.newCallHandler("/"+d.ServiceName+"/"+name, version, strings.HasPrefix(name, "Send"), run)
	})
}

// toStreamService returns d with all methods declared as streams. gRPC receives the message of a unary method
// before it calls the handler; that of a stream is received when the handler asks. On the wire there is no
// difference: a unary call is a stream with one message in each direction.
func toStreamService(d *grpc.ServiceDesc, wrap func(name string, run grpc.StreamHandler) grpc.StreamHandler) *grpc.ServiceDesc {
	out := &grpc.ServiceDesc{ServiceName: d.ServiceName, HandlerType: d.HandlerType, Metadata: d.Metadata}
	add := func(name string, run grpc.StreamHandler) {
		out.Streams = append(out.Streams, grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: wrap(name, run)})
	}
	for _, m := range d.Methods {
		add(m.MethodName, func(service any, stream grpc.ServerStream) error {
			answer, err := m.Handler(service, stream.Context(), stream.RecvMsg, nil)
			if err != nil {
				return err
			}
			return stream.SendMsg(answer)
		})
	}
	for _, m := range d.Streams {
		add(m.StreamName, m.Handler)
	}
	return out
}

// newCallHandler returns the handler of one method. method is its full name, which is also the route of logs and
// metrics; waits says that the method may wait for a task and has no deadline; run is the library's handler.
func (s *Server) newCallHandler(method, version string, waits bool, run grpc.StreamHandler) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		s.options.OnCall()
		header := http.Header{}
		// SubscribeToTask and TaskSubscription (0.3) also last as long as their task.
		route := surface.Route{Method: http.MethodPost, Pattern: method, RPCSystem: "grpc", NoDeadline: waits || strings.Contains(method, "Subscri")}
		route.Serve = func(_ http.ResponseWriter, r *http.Request) error {
			if _, err := a2a.NegotiateVersion(r, version); err != nil {
				return err
			}
			c := &call{httpRequest: r, request: surface.RequestOf(r), version: version}
			ctx := context.WithValue(r.Context(), callKey{}, c)
			return c.toCallError(ctx, run(service, &callStream{ServerStream: stream, ctx: ctx, call: c, header: header}))
		}
		reported := s.surfaceServer.ServeNonHTTP(route, toHTTPRequest(stream.Context(), method), header)
		switch {
		case reported != nil:
			stream.SetTrailer(toMetadata(header))
			return newStatusError(reported, header)
		case stream.Context().Err() != nil:
			return status.FromContextError(stream.Context().Err()).Err()
		}
		return nil
	}
}

// toHTTPRequest returns a call as an HTTP request: metadata as headers, the authority as host, the peer as remote
// address. It has no body.
func toHTTPRequest(ctx context.Context, method string) *http.Request {
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/2.0"}
	incomingMD, _ := metadata.FromIncomingContext(ctx)
	for key, values := range incomingMD {
		if key == ":authority" && len(values) > 0 {
			r.Host = values[0]
			continue
		}
		// Metadata keys are in lower case; http.Header expects canonical names.
		r.Header[http.CanonicalHeaderKey(key)] = values
	}
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = p.Addr.String()
	}
	return r.WithContext(ctx)
}

// toCallError returns the domain error of a finished method: the one recorded by recordFailure if there is one.
// Other errors come from the library, which could not decode the message or does not implement the method.
func (c *call) toCallError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	// The client has left or its deadline is over: what the library reports is a consequence.
	case ctx.Err() != nil && c.failure == nil:
		return ctx.Err()
	case c.failure != nil:
		return c.failure
	}
	switch st := status.Convert(err); st.Code() {
	case codes.InvalidArgument:
		return agentsvc.NewInvalidError("", "%s", strings.TrimPrefix(st.Message(), "failed to convert request: "))
	case codes.Unimplemented:
		return agentsvc.NewError(apierror.CodeUnsupported, "not supported\n%s", err)
	}
	return err
}

// callStream is the stream that the library's handler uses: its context carries the authenticated request, it
// checks messages on their way in and adapts those on their way out.
type callStream struct {
	grpc.ServerStream
	ctx  context.Context
	call *call
	// header holds response headers set by package surface, such as the state of limits. It is sent with the first
	// message.
	header     http.Header
	headerSent bool
}

// Context returns the context of the authenticated request with the call in it.
func (s *callStream) Context() context.Context { return s.ctx }

// RecvMsg receives the call's message into m. gRPC reports the size of a message only when all of it has arrived,
// so the number of messages that are received at a time is bounded per app (a message slot), and the memory for
// decoding is reserved after the arrival. A message that arrives slowly while others of the app wait is cut off
// with [requestbody.ErrTooSlow].
func (s *callStream) RecvMsg(m any) error {
	c := s.call
	cutOff := make(chan struct{})
	slot, err := surface.BodyOf(c.httpRequest).ReserveSlot(s.ctx, func() { close(cutOff) })
	if err != nil {
		return c.recordFailure(err)
	}
	// The slot bounds only the time in which messages arrive; the memory of the decoded message is reserved by
	// ReserveBody and kept until the call ends.
	defer slot.Release()
	in := &incomingMessage{target: m, reserve: func(size, values int) error {
		if err := slot.MarkReceived(); err != nil {
			return err
		}
		return surface.BodyOf(c.httpRequest).Reserve(s.ctx, size, values)
	}}
	received := make(chan error, 1)
	// The receive cannot be interrupted; the goroutine ends when the call ends, at the latest.
	go func() { received <- s.ServerStream.RecvMsg(in) }()
	select {
	case err = <-received:
	// The other goroutine still owns in. It can no longer decode into m: MarkReceived returns an error for a slot
	// that was cut off.
	case <-cutOff:
		return c.recordFailure(requestbody.ErrTooSlow)
	}
	switch {
	case in.failure != nil:
		return c.recordFailure(in.failure)
	case err == nil:
	case errors.Is(err, io.EOF):
		return c.recordFailure(agentsvc.NewInvalidError("", "the call holds no message"))
	// gRPC's own bound, 2*requestbody.MaxMessage.
	case status.Code(err) == codes.ResourceExhausted:
		return c.recordFailure(requestbody.ErrMessageTooLong)
	default:
		return err
	}
	// Messages of version 0.3 have no field tenant.
	if named, ok := m.(interface{ GetTenant() string }); ok {
		c.tenant = named.GetTenant()
	}
	if message, ok := m.(proto.Message); ok {
		c.invalid = checkInput(message)
	}
	// Adapt the message to what the library decodes: data of 1.0, then files of 0.3. Each is a no-op for the other
	// version.
	wrapMessageData(m)
	encodeFiles(m)
	return nil
}

// SendMsg sends a message of the library. Before the first one it sends the response headers.
func (s *callStream) SendMsg(m any) error {
	if !s.headerSent {
		s.headerSent = true
		if err := s.SetHeader(toMetadata(s.header)); err != nil {
			return err
		}
	}
	if reported, ok := m.(*pb03.StreamResponse); ok {
		s.call.setFinal(reported.GetStatusUpdate())
	}
	unwrapMessageData(m)
	return s.ServerStream.SendMsg(m)
}

// setFinal sets the member final of a status update of version 0.3, which says that the stream ends with it. The
// library converts from version 1.0, which has no such member.
func (c *call) setFinal(u *pb03.TaskStatusUpdateEvent) {
	if u == nil {
		return
	}
	switch u.GetStatus().GetState() {
	case pb03.TaskState_TASK_STATE_COMPLETED, pb03.TaskState_TASK_STATE_FAILED, pb03.TaskState_TASK_STATE_CANCELLED, pb03.TaskState_TASK_STATE_REJECTED:
		u.Final = true
	case pb03.TaskState_TASK_STATE_INPUT_REQUIRED, pb03.TaskState_TASK_STATE_AUTH_REQUIRED:
		u.Final = c.endsWhenSettled
	}
}
