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
	r       *http.Request // what its metadata say
	v       *surface.Visit
	version string
	tenant  string // as its message names it
	invalid error  // what the library does not see about its message, told to those who may call
	wrong   error  // what went wrong, in our words: the library would not keep them
	rests   bool   // its stream ends when the task waits for somebody
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// fail notes what went wrong.
func (c *call) fail(err error) error {
	c.wrong = a2a.Spelled(err)
	return err
}

// carried returns a service whose every method enters by the front door before its message is received.
func (s *Server) carried(d *grpc.ServiceDesc, version string) *grpc.ServiceDesc {
	return asStreams(d, func(name string, run grpc.StreamHandler) grpc.StreamHandler {
		return s.carry("/"+d.ServiceName+"/"+name, version, strings.HasPrefix(name, "Send"), run)
	})
}

// asStreams returns a service all of whose methods are streams, so that wrap's handlers run before a message is received. On the wire
// a method with one message and one answer is a stream of one and one.
func asStreams(d *grpc.ServiceDesc, wrap func(name string, run grpc.StreamHandler) grpc.StreamHandler) *grpc.ServiceDesc {
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

// carry returns the handler of a method that run carries out.
func (s *Server) carry(method, version string, waits bool, run grpc.StreamHandler) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		s.options.Begun()
		header := http.Header{}
		route := surface.Route{Method: http.MethodPost, Pattern: method, System: "grpc", Waits: waits || strings.Contains(method, "Subscri")}
		route.Serve = func(_ http.ResponseWriter, r *http.Request) error {
			if _, err := a2a.Spoken(r, version); err != nil {
				return err
			}
			c := &call{r: r, v: surface.VisitOf(r), version: version}
			ctx := context.WithValue(r.Context(), callKey{}, c)
			return c.outcome(ctx, run(service, &wire{ServerStream: stream, ctx: ctx, call: c, header: header}))
		}
		told := s.front.Carry(route, request(stream.Context(), method), header)
		switch {
		case told != nil:
			stream.SetTrailer(metadataOf(header))
			return statusOf(told, header)
		case stream.Context().Err() != nil:
			return status.FromContextError(stream.Context().Err()).Err()
		}
		return nil
	}
}

// request is a call as a request over HTTP would show it.
func request(ctx context.Context, method string) *http.Request {
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: method}, Header: http.Header{}, Body: http.NoBody, Proto: "HTTP/2.0"}
	shown, _ := metadata.FromIncomingContext(ctx)
	for key, values := range shown {
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

// outcome is what is told of an error that a method returned.
func (c *call) outcome(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && c.wrong == nil:
		return ctx.Err()
	case c.wrong != nil:
		return c.wrong
	}
	switch st := status.Convert(err); st.Code() {
	case codes.InvalidArgument:
		return agentsvc.Invalid("", "%s", strings.TrimPrefix(st.Message(), "failed to convert request: "))
	case codes.Unimplemented:
		return errors.Join(surface.ErrUnsupported, err)
	}
	return err
}

// wire is the stream of a call inside the house.
type wire struct {
	grpc.ServerStream
	ctx    context.Context
	call   *call
	header http.Header // what the door has for the caller
	begun  bool
}

// Context returns the context of the visit.
func (w *wire) Context() context.Context { return w.ctx }

// RecvMsg receives the message. Its app has so many calls at a time whose messages come in, since gRPC does not say how large one is
// before all of it is there; then a large one waits for room. One that takes long while others of the app wait is given up.
func (w *wire) RecvMsg(m any) error {
	c := w.call
	cut := make(chan struct{})
	place, err := c.v.Receiving(w.ctx, func() { close(cut) })
	if err != nil {
		return c.fail(err)
	}
	defer place.Done()
	in := &incoming{into: m, admit: func(size, values int) error {
		if err := place.Arrived(); err != nil {
			return err
		}
		return c.v.TakeRoom(w.ctx, size, values)
	}}
	received := make(chan error, 1)
	go func() { received <- w.ServerStream.RecvMsg(in) }() // it ends with the call at the latest
	select {
	case err = <-received:
	case <-cut: // in is the other goroutine's, which does not come to decode it
		return c.fail(surface.ErrSlow)
	}
	switch {
	case in.wrong != nil:
		return c.fail(in.wrong)
	case err == nil:
	case errors.Is(err, io.EOF):
		return c.fail(agentsvc.Invalid("", "the call holds no message"))
	case status.Code(err) == codes.ResourceExhausted:
		return c.fail(surface.ErrTooLong)
	default:
		return err
	}
	if named, ok := m.(interface{ GetTenant() string }); ok {
		c.tenant = named.GetTenant()
	}
	if message, ok := m.(proto.Message); ok {
		c.invalid = check(message)
	}
	enclose(m)
	encode(m)
	return nil
}

// SendMsg sends a message, and before the first what the door has for the caller.
func (w *wire) SendMsg(m any) error {
	if !w.begun {
		w.begun = true
		if err := w.SetHeader(metadataOf(w.header)); err != nil {
			return err
		}
	}
	if told, ok := m.(*pb03.StreamResponse); ok {
		w.call.finish(told.GetStatusUpdate())
	}
	free(m)
	return w.ServerStream.SendMsg(m)
}

// finish says of a status of version 0.3 whether the stream ends with it, which version 1.0 does not say.
func (c *call) finish(u *pb03.TaskStatusUpdateEvent) {
	if u == nil {
		return
	}
	switch u.GetStatus().GetState() {
	case pb03.TaskState_TASK_STATE_COMPLETED, pb03.TaskState_TASK_STATE_FAILED, pb03.TaskState_TASK_STATE_CANCELLED, pb03.TaskState_TASK_STATE_REJECTED:
		u.Final = true
	case pb03.TaskState_TASK_STATE_INPUT_REQUIRED, pb03.TaskState_TASK_STATE_AUTH_REQUIRED:
		u.Final = c.rests
	}
}
