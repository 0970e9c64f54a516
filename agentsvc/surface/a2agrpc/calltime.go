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

// limitCallTime ends a call whose client neither sends its message nor takes what it is sent, and one of gRPC's own services when the
// server closes: gRPC itself would let it wait for as long as the connection lasts.
func (s *Server) limitCallTime(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if t, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface{ RecvCompress() string }); ok {
		if by := t.RecvCompress(); by != "" && by != encoding.Identity {
			return status.Errorf(codes.Unimplemented, "%v: send them without grpc-encoding, which is %.20q", errCompressed, by)
		}
	}
	closing := s.closing
	var late <-chan time.Time
	switch {
	case isAgentMethod(info.FullMethod):
		closing = nil // such a call ends by itself, with what there is to tell
	case !isHealthMethod(info.FullMethod):
		select {
		case s.otherSlots <- struct{}{}:
			defer func() { <-s.otherSlots }()
		default:
			return status.Error(codes.ResourceExhausted, "too many ask which methods there are, try again shortly")
		}
		timer := time.NewTimer(maxOtherDuration)
		defer timer.Stop()
		late = timer.C
	}
	in := &timedStream{ServerStream: stream, options: &s.options, stalled: make(chan struct{})}
	done := make(chan error, 1)
	s.calls.Go(func() { done <- next(service, in) })
	select {
	case err := <-done:
		return err
	case <-in.stalled:
		// Whoever waits for the client is told by the end of the stream, which comes with this return.
		return status.Error(codes.Unavailable, "the client sends or takes too slowly")
	case <-late:
		return status.Errorf(codes.DeadlineExceeded, "such a call lasts %v at most", maxOtherDuration)
	case <-closing:
		return status.Error(codes.Unavailable, "the server stops, come back")
	}
}

func isHealthMethod(method string) bool {
	return strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
}

func isAgentMethod(method string) bool { return strings.Contains(method, "A2AService/") }

// timedStream is a stream on which the client has a limited time for each message.
type timedStream struct {
	grpc.ServerStream
	options  *Options
	stalled  chan struct{}
	timedOut atomic.Bool
}

func (a *timedStream) RecvMsg(m any) error {
	defer a.startTimer(a.options.ReceiveTimeout).Stop()
	return a.ServerStream.RecvMsg(m)
}

func (a *timedStream) SendMsg(m any) error {
	defer a.startTimer(a.options.SendTimeout).Stop()
	return a.ServerStream.SendMsg(m)
}

// startTimer ends the call if the timer that it returns is not stopped in time.
func (a *timedStream) startTimer(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		if a.timedOut.CompareAndSwap(false, true) {
			close(a.stalled)
		}
	})
}
