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
)

// call is one call of a method under way.
type call struct {
	httpRequest     *http.Request // what its metadata say
	request         *surface.Request
	version         string
	tenant          string // as its message names it
	invalid         error  // what the library does not see about its message, told to those who may call
	failure         error  // what went wrong, in our words: the library would not keep them
	endsWhenSettled bool   // its stream ends when the task waits for somebody
}

type callKey struct{}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// recordFailure notes what went wrong.
func (c *call) recordFailure(err error) error {
	c.failure = a2a.RespellField(err)
	return err
}

// wrapService returns a service whose every method enters by the front door before its message is received.
func (s *Server) wrapService(d *grpc.ServiceDesc, version string) *grpc.ServiceDesc {
	return toStreamService(d, func(name string, run grpc.StreamHandler) grpc.StreamHandler {
		return s.newCallHandler("/"+d.ServiceName+"/"+name, version, strings.HasPrefix(name, "Send"), run)
	})
}

// toStreamService returns a service all of whose methods are streams, so that wrap's handlers run before a message is received. On the wire
// a method with one message and one answer is a stream of one and one.
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

// newCallHandler returns the handler of a method that run carries out.
func (s *Server) newCallHandler(method, version string, waits bool, run grpc.StreamHandler) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		s.options.OnCall()
		header := http.Header{}
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

// toHTTPRequest is a call as a request over HTTP would show it.
func toHTTPRequest(ctx context.Context, method string) *http.Request {
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/2.0"}
	incomingMD, _ := metadata.FromIncomingContext(ctx)
	for key, values := range incomingMD {
		if key == ":authority" && len(values) > 0 {
			r.Host = values[0]
			continue
		}
		r.Header[http.CanonicalHeaderKey(key)] = values
	}
	if p, ok := peer.FromContext(ctx); ok {
		r.RemoteAddr = p.Addr.String()
	}
	return r.WithContext(ctx)
}

// toCallError is what is told of an error that a method returned.
func (c *call) toCallError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && c.failure == nil:
		return ctx.Err()
	case c.failure != nil:
		return c.failure
	}
	switch st := status.Convert(err); st.Code() {
	case codes.InvalidArgument:
		return agentsvc.NewInvalidError("", "%s", strings.TrimPrefix(st.Message(), "failed to convert request: "))
	case codes.Unimplemented:
		return errors.Join(surface.ErrUnsupported, err)
	}
	return err
}

// callStream is the stream of a call inside the house.
type callStream struct {
	grpc.ServerStream
	ctx        context.Context
	call       *call
	header     http.Header // what the door has for the caller
	headerSent bool
}

// Context returns the context of the visit.
func (w *callStream) Context() context.Context { return w.ctx }

// RecvMsg receives the message. Its app has so many calls at a time whose messages come in, since gRPC does not say how large one is
// before all of it is there; then a large one waits for room. One that takes long while others of the app wait is given up.
func (w *callStream) RecvMsg(m any) error {
	c := w.call
	cutOff := make(chan struct{})
	slot, err := c.request.ReserveMessageSlot(w.ctx, func() { close(cutOff) })
	if err != nil {
		return c.recordFailure(err)
	}
	defer slot.Release()
	in := &incomingMessage{target: m, reserve: func(size, values int) error {
		if err := slot.MarkReceived(); err != nil {
			return err
		}
		return c.request.ReserveBody(w.ctx, size, values)
	}}
	received := make(chan error, 1)
	go func() { received <- w.ServerStream.RecvMsg(in) }() // it ends with the call at the latest
	select {
	case err = <-received:
	case <-cutOff: // in is the other goroutine's, which does not come to decode it
		return c.recordFailure(surface.ErrTooSlow)
	}
	switch {
	case in.failure != nil:
		return c.recordFailure(in.failure)
	case err == nil:
	case errors.Is(err, io.EOF):
		return c.recordFailure(agentsvc.NewInvalidError("", "the call holds no message"))
	case status.Code(err) == codes.ResourceExhausted:
		return c.recordFailure(surface.ErrMessageTooLong)
	default:
		return err
	}
	if named, ok := m.(interface{ GetTenant() string }); ok {
		c.tenant = named.GetTenant()
	}
	if message, ok := m.(proto.Message); ok {
		c.invalid = checkInput(message)
	}
	wrapMessageData(m)
	encodeFiles(m)
	return nil
}

// SendMsg sends a message, and before the first what the door has for the caller.
func (w *callStream) SendMsg(m any) error {
	if !w.headerSent {
		w.headerSent = true
		if err := w.SetHeader(toMetadata(w.header)); err != nil {
			return err
		}
	}
	if reported, ok := m.(*pb03.StreamResponse); ok {
		w.call.setFinal(reported.GetStatusUpdate())
	}
	unwrapMessageData(m)
	return w.ServerStream.SendMsg(m)
}

// setFinal says of a status of version 0.3 whether the stream ends with it, which version 1.0 does not say.
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
