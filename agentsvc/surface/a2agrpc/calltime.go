package a2agrpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// limitCallTime runs every call under time limits. gRPC itself has none: a call whose client neither sends its
// message nor reads the response would last as long as its connection. The handler runs in a goroutine of its own,
// because a blocked RecvMsg or SendMsg only returns when this function has returned and gRPC has ended the stream.
func (s *Server) limitCallTime(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := stream.Context().Err(); err != nil {
		countWasted(stream.Context())
		return status.FromContextError(err).Err()
	}
	defer func() {
		if errors.Is(stream.Context().Err(), context.Canceled) { // gRPC has not ended the call yet: its client has
			countWasted(stream.Context())
		}
	}()
	if caller, ok := peer.FromContext(stream.Context()); ok {
		release, ok := s.options.AcquireCall(caller.Addr.String())
		if !ok {
			return status.Error(codes.Unavailable, "too many calls are open, try again shortly")
		}
		defer release()
	}
	// A compressed message could become gigabytes when it is decompressed.
	if t, ok := grpc.ServerTransportStreamFromContext(stream.Context()).(interface{ RecvCompress() string }); ok {
		if by := t.RecvCompress(); by != "" && by != encoding.Identity {
			return status.Errorf(codes.Unimplemented, "%v: send them without grpc-encoding, which is %.20q", errCompressed, by)
		}
	}
	// A nil channel in the select below is never ready.
	closing := s.closing
	var expired <-chan time.Time
	switch {
	case isAgentMethod(info.FullMethod):
		closing = nil // agent calls end by themselves at shutdown, with a proper last message
	case !isHealthMethod(info.FullMethod):
		select {
		case s.otherSlots <- struct{}{}:
			defer func() { <-s.otherSlots }()
		default:
			return status.Error(codes.ResourceExhausted, "too many reflection calls are open, try again shortly")
		}
		timer := time.NewTimer(maxOtherDuration)
		defer timer.Stop()
		expired = timer.C
	}
	in := &timedStream{ServerStream: stream, options: &s.options, stalled: make(chan struct{})}
	done := make(chan error, 1)
	// The channel has a buffer of one value, so the goroutine ends even if its result is not received.
	s.calls.Go(func() { done <- next(service, in) })
	select {
	case err := <-done:
		return err
	// Returning ends the stream, which unblocks the handler's RecvMsg or SendMsg.
	case <-in.stalled:
		return status.Error(codes.Unavailable, "the client sends or takes too slowly")
	case <-expired:
		return status.Errorf(codes.DeadlineExceeded, "such a call lasts %v at most", maxOtherDuration)
	case <-closing:
		return status.Error(codes.Unavailable, "the server stops, come back")
	}
}

// isHealthMethod reports whether a full method name belongs to gRPC's health service.
func isHealthMethod(method string) bool {
	return strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
}

// isAgentMethod reports whether a full method name belongs to an A2A service of either version.
func isAgentMethod(method string) bool { return strings.Contains(method, "A2AService/") }

// timedStream bounds the time of each message of a stream.
type timedStream struct {
	grpc.ServerStream
	options  *Options
	stalled  chan struct{} // closed when a message took too long
	timedOut atomic.Bool   // stalled is closed; a send and a receive may time out at once
}

func (s *timedStream) RecvMsg(m any) error {
	defer s.startTimer(s.options.ReceiveTimeout).Stop()
	return s.ServerStream.RecvMsg(m)
}

func (s *timedStream) SendMsg(m any) error {
	defer s.startTimer(s.options.SendTimeout).Stop()
	return s.ServerStream.SendMsg(m)
}

// startTimer returns a timer that marks the stream as stalled after d unless it is stopped before.
func (s *timedStream) startTimer(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		if s.timedOut.CompareAndSwap(false, true) {
			close(s.stalled)
		}
	})
}
