package a2agrpc

import (
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// attend ends a call whose client neither sends its message nor takes what it is sent, and one of gRPC's own services when the
// server closes: gRPC itself would let it wait for as long as the connection lasts.
func (s *Server) attend(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if t, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface{ RecvCompress() string }); ok {
		if by := t.RecvCompress(); by != "" && by != encoding.Identity {
			return status.Errorf(codes.Unimplemented, "%v: send them without grpc-encoding, which is %.20q", errCompressed, by)
		}
	}
	closing := s.closing
	var late <-chan time.Time
	switch {
	case isAgents(info.FullMethod):
		closing = nil // such a call ends by itself, with what there is to tell
	case !isHealth(info.FullMethod):
		select {
		case s.others <- struct{}{}:
			defer func() { <-s.others }()
		default:
			return status.Error(codes.ResourceExhausted, "too many ask which methods there are, try again shortly")
		}
		timer := time.NewTimer(longestTalk)
		defer timer.Stop()
		late = timer.C
	}
	in := &attended{ServerStream: stream, o: &s.options, stalled: make(chan struct{})}
	done := make(chan error, 1)
	s.calls.Go(func() { done <- next(service, in) })
	select {
	case err := <-done:
		return err
	case <-in.stalled:
		// Whoever waits for the client is told by the end of the stream, which comes with this return.
		return status.Error(codes.Unavailable, "the client sends or takes too slowly")
	case <-late:
		return status.Errorf(codes.DeadlineExceeded, "such a call lasts %v at most", longestTalk)
	case <-closing:
		return status.Error(codes.Unavailable, "the server stops, come back")
	}
}

func isHealth(method string) bool {
	return strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
}

func isAgents(method string) bool { return strings.Contains(method, "A2AService/") }

// attended is a stream on which the client has a limited time for each message.
type attended struct {
	grpc.ServerStream
	o       *Options
	stalled chan struct{}
	over    atomic.Bool
}

func (a *attended) RecvMsg(m any) error {
	defer a.within(a.o.Arrive).Stop()
	return a.ServerStream.RecvMsg(m)
}

func (a *attended) SendMsg(m any) error {
	defer a.within(a.o.Stall).Stop()
	return a.ServerStream.SendMsg(m)
}

// within ends the call if the timer that it returns is not stopped in time.
func (a *attended) within(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		if a.over.CompareAndSwap(false, true) {
			close(a.stalled)
		}
	})
}
