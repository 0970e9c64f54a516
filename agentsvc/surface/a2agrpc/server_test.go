package a2agrpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb10 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/tenancy/db/dbtest"
)

// TestDeadline checks that a call ends at the client's deadline and that the server then closes its subscription.
func TestDeadline(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	c := pb10.NewA2AServiceClient(h.conn)
	ctx, cancel := context.WithTimeout(withCredentials(t.Context(), h.mintToken(t, "acme", "ana"), ""), 150*time.Millisecond)
	defer cancel()
	if _, err := c.SendMessage(ctx, newSendRequest("never")); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("send: %v", err)
	}
	stream, err := c.SendStreamingMessage(ctx, newSendRequest("never"))
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("stream: %v", err)
	}
	dbtest.WaitUntil(t, "the server has let go", func() bool { return h.Server.OpenStreams() == 0 })
}

// TestShutdown drains a server with an open stream, a blocking call, a health watcher and a reflection call in
// progress.
func TestShutdown(t *testing.T) {
	t.Parallel()
	ready := &atomic.Bool{}
	ready.Store(true)
	h := newFixture(t, surface.Options{}, a2agrpc.Options{Ready: func(context.Context) error {
		if ready.Load() {
			return nil
		}
		return errors.New("not yet")
	}})
	serving, not := grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING
	health := grpc_health_v1.NewHealthClient(h.conn)
	checkStatus := func() grpc_health_v1.HealthCheckResponse_ServingStatus {
		answer, err := health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetStatus()
	}
	watch, err := health.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expectStatus := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Errorf("the watcher sees %v, %v, want %v", got, err, want)
		}
	}
	expectStatus(serving)
	ready.Store(false)
	if checkStatus() != not {
		t.Error("it serves though it is not ready")
	}
	expectStatus(not)
	ready.Store(true)
	if checkStatus() != serving {
		t.Error("it does not serve though it is ready")
	}
	expectStatus(serving)

	ctx := withCredentials(t.Context(), h.mintToken(t, "acme", "ana"), "")
	c := pb10.NewA2AServiceClient(h.conn)
	stream, err := c.SendStreamingMessage(ctx, newSendRequest("never"))
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan *pb10.Task, 1)
	go func() {
		req := newSendRequest("never")
		req.Message.MessageId = "waits"
		answer, _ := c.SendMessage(ctx, req)
		waiting <- answer.GetTask()
	}()
	mirror, err := grpc_reflection_v1.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queryReflection := func(q *grpc_reflection_v1.ServerReflectionRequest) *grpc_reflection_v1.ServerReflectionResponse {
		t.Helper()
		if err := mirror.Send(q); err != nil {
			t.Fatal(err)
		}
		answer, err := mirror.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	var services []string
	for _, s := range queryReflection(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		services = append(services, s.GetName())
	}
	for _, v := range versions {
		if !slices.Contains(services, v.service) {
			t.Errorf("reflection lists %v, not %s", services, v.service)
		}
		method := &grpc_reflection_v1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: v.service + ".SendMessage"}
		if files := queryReflection(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: method}).GetFileDescriptorResponse().GetFileDescriptorProto(); len(files) == 0 {
			t.Errorf("reflection does not know %s.SendMessage", v.service)
		}
	}
	h.WaitForWorking(t, 2)

	h.server.Drain()
	expectStatus(not)
	if checkStatus() != not {
		t.Error("it serves though it drains")
	}
	h.Server.EndStreams()
	closed := make(chan struct{})
	go func() { h.server.Close(t.Context()); close(closed) }()
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable || errorInfo(err) == nil {
		t.Errorf("the stream ends with %v", err)
	}
	if task := <-waiting; task.GetStatus().GetState() != pb10.TaskState_TASK_STATE_WORKING {
		t.Errorf("the call that waits is answered %v", task)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watcher got %v", err)
	}
	if _, err := mirror.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the client of reflection got %v", err)
	}
	<-closed
}

// TestServeAfterStop checks that a listener whose server has already ended is no error: the end may overtake the start.
func TestServeAfterStop(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	h.server.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.server.Serve(l); err != nil {
		t.Errorf("serve: %v", err)
	}
}

// TestLimits checks that calls count against the app's limits as over HTTP.
func TestLimits(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{})
	h.CreateApp(t, "small", surfacetest.Script+"rate_limiting: {enabled: true, scope: user, limits: [{type: count, window: hour, limit: 1}]}\n")
	ctx := withCredentials(t.Context(), h.mintToken(t, "small", "ana"), "")
	c := pb10.NewA2AServiceClient(h.conn)
	var header metadata.MD
	if _, err := c.SendMessage(ctx, newSendRequest("hello"), grpc.Header(&header)); err != nil || header.Get("x-ratelimit-remaining")[0] != "0" {
		t.Errorf("the first call: %v, %v", err, header)
	}
	req := newSendRequest("hello")
	req.Message.MessageId = "another"
	_, err := c.SendMessage(ctx, req)
	retries := slices.ContainsFunc(status.Convert(err).Details(), func(d any) bool {
		r, ok := d.(*errdetails.RetryInfo)
		return ok && r.GetRetryDelay().AsDuration() > 0
	})
	if status.Code(err) != codes.ResourceExhausted || !retries || errorInfo(err).GetReason() != "RESOURCE_EXHAUSTED" {
		t.Errorf("the second call: %v with %v", err, status.Convert(err).Details())
	}
	log := h.Log.String()
	for _, want := range []string{"method=POST route=/lf.a2a.v1.A2AService/SendMessage status=200", "status=429", "app=small agent=assistant"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not hold %q", want)
		}
	}
}

// rawConn is an HTTP/2 connection on which a test writes single frames.
type rawConn struct {
	*http2.Framer
	t      *testing.T
	conn   net.Conn
	header bytes.Buffer
	hpack  *hpack.Encoder
}

func (f *fixture) dialRaw(t *testing.T, settings ...http2.Setting) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	w := &rawConn{Framer: http2.NewFramer(conn, conn), t: t, conn: conn}
	w.hpack = hpack.NewEncoder(&w.header)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err = errors.Join(err, w.WriteSettings(settings...)); err != nil {
		t.Fatal(err)
	}
	return w
}

// writeCall sends the headers of a call; ends says that no message follows.
func (c *rawConn) writeCall(stream uint32, path, token string, ends bool) error {
	c.header.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", path},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"authorization", "Bearer " + token},
	} {
		if err := c.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			c.t.Fatal(err)
		}
	}
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.header.Bytes(), EndHeaders: true, EndStream: ends})
}

// beginCall starts a call of SendStreamingMessage and sends m, nil = no message.
func (c *rawConn) beginCall(stream uint32, token string, m proto.Message) error {
	err := c.writeCall(stream, "/lf.a2a.v1.A2AService/SendStreamingMessage", token, false)
	if m == nil || err != nil {
		return err
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw))), raw...)
	for part := range slices.Chunk(frame, 16<<10) {
		if err := c.WriteData(stream, false, part); err != nil {
			return err
		}
	}
	return nil
}

// TestSlowClients checks that a client that does not send its message, or does not read the response, keeps a call
// no longer than the timeouts, and that the concurrent calls of a connection are bounded.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	h := newFixture(t, surface.Options{}, a2agrpc.Options{SendTimeout: time.Second, ReceiveTimeout: time.Second})
	ana := h.mintToken(t, "acme", "ana")
	silent := h.dialRaw(t)
	if err := silent.beginCall(1, ana, nil); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := silent.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			if maximum, _ := s.Value(http2.SettingMaxConcurrentStreams); maximum != surface.MaxStreams {
				t.Errorf("a connection may have %d streams", maximum)
			}
		}
		if head, ok := f.(*http2.HeadersFrame); ok && head.StreamEnded() {
			break
		}
	}

	full := h.dialRaw(t, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err := full.beginCall(1, ana, newSendRequest(strings.Repeat("long ", 10_000))); err != nil {
		t.Fatal(err)
	}
	dbtest.WaitUntil(t, "the call has begun", func() bool { return h.Server.OpenStreams() == 1 })
	dbtest.WaitUntil(t, "nobody waits for the reader", func() bool { return h.Server.OpenStreams() == 0 })

	rapid := h.dialRaw(t)
	for i := range uint32(3000) {
		if rapid.beginCall(2*i+1, ana, nil) != nil || rapid.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break // the server has closed the connection
		}
	}
	if _, err := pb10.NewA2AServiceClient(h.conn).SendMessage(withCredentials(t.Context(), ana, ""), newSendRequest("hello")); err != nil {
		t.Errorf("another address is answered %v", err)
	}
}
