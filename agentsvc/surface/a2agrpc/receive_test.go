package a2agrpc_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/decode"
	"stoa/tenancy/db/dbtest"
)

// countingConn counts the bytes that are written to a connection.
type countingConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// withCountingDialer counts the bytes that a client sends.
func withCountingDialer(sent *atomic.Int64) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		return countingConn{conn, sent}, err
	})
}

// TestHealthReadsNothing checks that the health service, which needs no credential, answers without receiving the
// request.
func TestHealthReadsNothing(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	var sent atomic.Int64
	health := grpc_health_v1.NewHealthClient(h.dialServer(t, withCountingDialer(&sent)))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	large := &grpc_health_v1.HealthCheckRequest{Service: strings.Repeat("x", 20<<20)}
	answer, err := health.Check(ctx, large)
	if err != nil || answer.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("Check: %v, %v", answer, err)
	}
	if list, err := health.List(ctx, &grpc_health_v1.HealthListRequest{}); err != nil || len(list.GetStatuses()) != 1 {
		t.Errorf("List: %v, %v", list, err)
	}
	if n := sent.Load(); n > 1<<20 {
		t.Errorf("the server received %d bytes", n)
	}
}

// TestRefusedMessages checks that a message is refused before it is decoded if that could take many times its size in
// memory: for its number of values, for the length of a list in it, and for being compressed.
func TestRefusedMessages(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	ctx := withCredentials(t.Context(), h.mintToken(t, "acme", "ana"), "")
	newDataRequest := func(numbers int) *pb10.SendMessageRequest {
		list := &structpb.ListValue{Values: slices.Repeat([]*structpb.Value{structpb.NewNumberValue(1)}, numbers)}
		req := newSendRequest("hello")
		req.Message.Parts = append(req.Message.Parts, &pb10.Part{Content: &pb10.Part_Data{Data: structpb.NewListValue(list)}})
		return req
	}
	manyParts := newSendRequest("hello")
	manyParts.Message.Parts = slices.Repeat(manyParts.Message.Parts, decode.MaxList+1)
	for _, tt := range []struct {
		name    string
		req     *pb10.SendMessageRequest
		code    codes.Code
		message string
		options []grpc.CallOption
	}{
		// Each number takes two values: itself and the google.protobuf.Value around it. The rest of the message takes 15 at most.
		{"values up to the bound", newDataRequest(decode.MaxValues/2 - 10), codes.OK, "", nil},
		{"values beyond it", newDataRequest(decode.MaxValues / 2), codes.ResourceExhausted, "the body holds too many values, 100000 are allowed", nil},
		{"parts beyond their bound", manyParts, codes.ResourceExhausted, "the body holds too many items in a list, 10000 are allowed", nil},
		{"compressed", newSendRequest("hello"), codes.Unimplemented, `messages must not be compressed: send them without grpc-encoding, which is "gzip"`, []grpc.CallOption{grpc.UseCompressor(gzip.Name)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.req.Message.MessageId = tt.name
			_, err := pb10.NewA2AServiceClient(h.conn).SendMessage(ctx, tt.req, tt.options...)
			if got := status.Convert(err); got.Code() != tt.code || got.Message() != tt.message {
				t.Errorf("%v: %s, want %v: %s", got.Code(), got.Message(), tt.code, tt.message)
			}
		})
	}
}

// TestFewReflect checks that the number of concurrent reflection calls is bounded, which bounds the memory for
// their messages.
func TestFewReflect(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	queryReflection := func() (grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient, error) {
		c, err := grpc_reflection_v1.NewServerReflectionClient(h.conn).ServerReflectionInfo(ctx)
		if err == nil {
			err = c.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
		}
		if err == nil {
			_, err = c.Recv()
		}
		return c, err
	}
	var open []grpc_reflection_v1.ServerReflection_ServerReflectionInfoClient
	for range 4 {
		c, err := queryReflection()
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if _, err := queryReflection(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one too many: %v", err)
	}
	if _, err := grpc_health_v1.NewHealthClient(h.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Errorf("health meanwhile: %v", err)
	}
	for _, c := range open {
		if err := c.CloseSend(); err != nil {
			t.Error(err)
		}
		for err := error(nil); err == nil; {
			_, err = c.Recv()
		}
	}
	if _, err := queryReflection(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestSlowSenders checks that calls of one app whose messages do not arrive block other apps not at all, and other
// calls of the same app only until they are found to be slow.
func TestSlowSenders(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	slow := withCredentials(ctx, h.mintToken(t, "acme", "ana"), "")
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	method := pb10.A2AService_SendMessage_FullMethodName
	var asked sync.WaitGroup
	var given atomic.Int64
	for range 16 {
		call, err := h.conn.NewStream(slow, desc, method) // a call whose message is never sent
		if err != nil {
			t.Fatal(err)
		}
		asked.Go(func() {
			if err := call.RecvMsg(&pb10.SendMessageResponse{}); status.Code(err) == codes.ResourceExhausted {
				given.Add(1)
			}
		})
	}
	c := pb10.NewA2AServiceClient(h.conn)
	dbtest.WaitUntil(t, "a further call of the app waits", func() bool {
		own, cancel := context.WithTimeout(slow, 500*time.Millisecond)
		defer cancel()
		_, err := c.SendMessage(own, newSendRequest("hello"))
		return status.Code(err) == codes.DeadlineExceeded
	})
	if _, err := c.SendMessage(withCredentials(ctx, h.mintToken(t, "globex", "bob"), ""), newSendRequest("hello")); err != nil {
		t.Errorf("a call of another app: %v", err)
	}
	if _, err := c.SendMessage(slow, newSendRequest("hello")); err != nil {
		t.Errorf("a call of the app: %v", err)
	}
	stop()
	asked.Wait()
	if n := given.Load(); n != 1 {
		t.Errorf("%d of the slow calls were given up", n)
	}
}
