package v1_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"stoa/agentsvc/config"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/surfacetest"
	v1 "stoa/agentsvc/surface/v1"
	"stoa/authz"
	"stoa/tenancy/audit"
)

const socketPath = agentPath + "/stream"

func dialSocket(t *testing.T, h *surfacetest.Fixture, credential string, protocols ...string) *surfacetest.Socket {
	t.Helper()
	s, resp := h.DialSocket(t, socketPath, credential, websocket.DialOptions{Subprotocols: protocols})
	if s == nil {
		t.Fatalf("refused with %s", resp.Status)
	}
	return s
}

// newNumberedMessage returns a message with an ID.
func newNumberedMessage(id, text string) string {
	return `{"message": {"messageId": "` + id + `", "role": "user", "parts": [{"text": "` + text + `"}]}}`
}

// readUntilClosed skips frames until the connection is closed, and returns close code and reason.
func readUntilClosed(t *testing.T, s *surfacetest.Socket) (websocket.StatusCode, string) {
	t.Helper()
	receivedText := ""
	for {
		text, err := s.ReadFrame()
		if err != nil {
			return websocket.CloseStatus(err), receivedText
		}
		receivedText += text + "\n"
	}
}

// TestSocketCredential sends the credential in the header and as a subprotocol, and checks that the server selects
// a subprotocol that was offered.
func TestSocketCredential(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	h.CreateApp(t, "acme", slowConfig)
	ana := h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"})
	tests := []struct {
		name, header string
		protocols    []string
		want         string // the selected subprotocol, or the status of a refusal
	}{
		{"header", ana, nil, ""},
		{"subprotocol", "", []string{"bearer." + ana}, "bearer." + ana},
		{"subprotocol that keeps the credential to itself", "", []string{"bearer." + ana, "stoa.v1"}, "stoa.v1"},
		{"header beside another subprotocol", ana, []string{"stoa.v1"}, "stoa.v1"},
		{"bad subprotocol", "", []string{"bearer.a.b.c"}, "401"},
		{"empty subprotocol", "", []string{"bearer."}, "401"},
		{"header counts", "a.b.c", []string{"bearer." + ana}, "401"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, resp := h.DialSocket(t, "/apps/acme"+socketPath, tt.header, websocket.DialOptions{Subprotocols: tt.protocols})
			if s == nil {
				if got := fmt.Sprint(resp.StatusCode); got != tt.want {
					t.Errorf("refused with %s, want %q", got, tt.want)
				}
				return
			}
			if got := s.Subprotocol(); got != tt.want {
				t.Errorf("the answer names %q, want %q", got, tt.want)
			}
			s.WriteFrame(newNumberedMessage("", "hello"))
			if all := strings.Join(s.ReadAnswer(), ""); !strings.Contains(all, "TASK_STATE_COMPLETED") {
				t.Errorf("the answer is %s", all)
			}
		})
	}
	if log := h.Log.String(); strings.Contains(log, ana) {
		t.Error("the log holds a token")
	}
}

// TestSocketOrigin checks which origins of pages may open connections.
func TestSocketOrigin(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Browsers: surface.Browsers{CORS: config.CORS{AllowedOrigins: []string{"https://app.example.com"}}}})
	all := newSlowFixture(t, v1.Options{}, surface.Options{Browsers: surface.Browsers{CORS: config.CORS{AllowedOrigins: []string{"*"}}}})
	unset := newSlowFixture(t, v1.Options{}, surface.Options{})
	tests := []struct {
		h      *surfacetest.Fixture
		origin string // several, with spaces between them, in a header each
		ok     bool
	}{
		{h, "https://app.example.com", true}, {h, "https://evil.example.com", false}, {h, "null", false}, {h, "", true}, {h, h.URL, true},
		{h, "http://app.example.com", false}, {all, "https://evil.example.com", true},
		{unset, "https://evil.example.com", false}, {unset, "", true}, {unset, unset.URL, true},
		{h, "https://app.example.com https://evil.example.com", false}, {unset, unset.URL + " https://evil.example.com", false},
	}
	for _, tt := range tests {
		o := websocket.DialOptions{HTTPHeader: http.Header{}}
		o.HTTPHeader["Origin"] = strings.Fields(tt.origin)
		s, resp := tt.h.DialSocket(t, socketPath, "", o)
		if (s != nil) != tt.ok || s == nil && resp.StatusCode != http.StatusForbidden {
			t.Errorf("a page of %q: %s, want it let in: %v", tt.origin, resp.Status, tt.ok)
		}
	}
}

// TestSocketConcurrentMessages sends messages while others are being answered, up to the bound and one more.
func TestSocketConcurrentMessages(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	s := dialSocket(t, h, "")
	for i := range 15 {
		s.WriteFrame(newNumberedMessage(fmt.Sprintf("n%d", i), "never"))
	}
	s.WriteFrame(newNumberedMessage("quick", "slow"))
	s.WriteFrame(newNumberedMessage("more", "hello"))
	received := map[string]string{}
	for received["quick"] == "" || received["more"] == "" {
		text, err := s.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		var f struct {
			MessageID string
			Response  struct{ Content []struct{ Text string } }
			Done      bool
			Error     struct{ Code string }
		}
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Response.Content {
			received[f.MessageID+" text"] += p.Text
		}
		if f.Done {
			received[f.MessageID] = "done " + f.Error.Code
		}
	}
	if received["quick"] != "done " || received["quick text"] != "one two" || received["more"] != "done RESOURCE_EXHAUSTED" {
		t.Errorf("got %v", received)
	}
	s.WriteFrame(newNumberedMessage("again", "hello")) // a slot is free again
	if code, receivedText := "", ""; true {
		for !strings.Contains(receivedText, `"messageId":"again","done":true`) {
			text, err := s.ReadFrame()
			if err != nil {
				t.Fatal(code, err)
			}
			receivedText += text
		}
	}
}

// TestSocketFrames sends frames that are large, too large, incomplete, and binary.
func TestSocketFrames(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{KeepAlive: time.Hour}}) // the client library answers no ping while it sends a frame
	t.Run("3 MiB", func(t *testing.T) {
		s := dialSocket(t, h, "")
		s.WriteFrame(newNumberedMessage("large", strings.Repeat("a", 3<<20)))
		if all := s.ReadAnswer(); !strings.Contains(all[len(all)-1], `"done":true`) || strings.Contains(all[len(all)-1], "error") {
			t.Errorf("the last frame is %.300s", all[len(all)-1])
		}
	})
	t.Run("40 MB", func(t *testing.T) {
		s := dialSocket(t, h, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { _ = s.Write(ctx, websocket.MessageText, make([]byte, 40_000_000)) }()
		if code, _ := readUntilClosed(t, s); code != websocket.StatusMessageTooBig {
			t.Errorf("closed with %d, want 1009", code)
		}
	})
	t.Run("binary", func(t *testing.T) {
		s := dialSocket(t, h, "")
		if err := s.Write(t.Context(), websocket.MessageBinary, []byte(newNumberedMessage("", "hello"))); err != nil {
			t.Fatal(err)
		}
		if code, _ := readUntilClosed(t, s); code != websocket.StatusUnsupportedData {
			t.Errorf("closed with %d, want 1003", code)
		}
	})
	t.Run("too deep", func(t *testing.T) {
		s := dialSocket(t, h, "")
		s.WriteFrame(`{"message": ` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`)
		if all := strings.Join(s.ReadAnswer(), ""); !strings.Contains(all, "nested more than 64 levels deep") {
			t.Errorf("the answer is %s", all)
		}
	})
	t.Run("half a frame", func(t *testing.T) {
		conn, r := openRawSocket(t, newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{PieceTimeout: 100 * time.Millisecond}}))
		if _, err := conn.Write([]byte{0x81, 0x85, 0, 0, 0, 0, '{', '"'}); err != nil {
			t.Fatal(err)
		}
		if took := timeUntilClosed(t, conn, r); took >= closeTimeout {
			t.Errorf("not dropped within %v", took)
		}
	})
	t.Run("a frame that trickles", func(t *testing.T) {
		conn, r := openRawSocket(t, newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{PieceTimeout: closeTimeout, BodyTimeout: 300 * time.Millisecond}}))
		if _, err := conn.Write([]byte{0x81, 0xfe, 0x80, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		if took := timeUntilClosed(t, keepSending(t, conn), r); took >= closeTimeout {
			t.Errorf("not dropped within %v", took)
		}
	})
}

// keepSending sends a few bytes on a connection again and again.
func keepSending(t *testing.T, conn net.Conn) net.Conn {
	tick := time.NewTicker(20 * time.Millisecond)
	t.Cleanup(tick.Stop)
	done := t.Context().Done()
	go func() {
		for err := error(nil); err == nil; {
			select {
			case <-done:
				return
			case <-tick.C:
				_, err = conn.Write([]byte{' '})
			}
		}
	}()
	return conn
}

// openRawSocket opens a WebSocket on which the test reads and writes single bytes.
func openRawSocket(t *testing.T, h *surfacetest.Fixture) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", socketPath)
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	return conn, r
}

// closeTimeout is how long a test waits for a connection to be closed.
const closeTimeout = time.Minute

// timeUntilClosed returns how long the server took to close a connection on which the client only reads.
func timeUntilClosed(t *testing.T, conn net.Conn, r *bufio.Reader) time.Duration {
	t.Helper()
	begin := time.Now()
	_ = conn.SetReadDeadline(begin.Add(closeTimeout))
	for {
		if _, err := r.ReadByte(); err != nil {
			return time.Since(begin)
		}
	}
}

// TestSocketPing checks that a client that does not answer pings is dropped, and one that does is not.
func TestSocketPing(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{KeepAlive: 50 * time.Millisecond, PieceTimeout: 2 * time.Second}})
	s := dialSocket(t, h, "")
	pings := make(chan error, 1)
	go func() { // the library answers pings while it reads
		_, _, err := s.Read(context.Background())
		pings <- err
	}()
	conn, r := openRawSocket(t, h)
	if took := timeUntilClosed(t, conn, r); took >= closeTimeout {
		t.Errorf("a client that answers no ping was not dropped within %v", took)
	}
	select {
	case err := <-pings: // this connection is older than the one that was dropped
		t.Errorf("a client that answers pings was dropped: %v", err)
	default:
	}
	s.CloseNow()
	<-pings
}

// TestSocketSlowSender checks that a client is not dropped while it sends a message for longer than the ping
// timeout: it cannot answer a ping in the middle of a frame.
func TestSocketSlowSender(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{KeepAlive: 50 * time.Millisecond, PieceTimeout: 1500 * time.Millisecond}})
	conn, r := openRawSocket(t, h)
	const pieces = 60
	text := newNumberedMessage("long", strings.Repeat("a", pieces<<16))
	frame := []byte{0x81, 0xff, 0, 0, 0, 0, byte(len(text) >> 24), byte(len(text) >> 16), byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}
	frame = append(frame, text...)
	for i := range pieces {
		if _, err := conn.Write(frame[len(frame)*i/pieces : len(frame)*(i+1)/pieces]); err != nil {
			t.Fatalf("dropped after %d of %d pieces: %v", i, pieces, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
	for receivedText := ""; !strings.Contains(receivedText, `"messageId":"long"`); {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatalf("after its message the client got %q, %v", receivedText, err)
		}
		receivedText += string(b)
	}
}

// TestSocketSlowReader checks that a client that does not read is dropped.
func TestSocketSlowReader(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{PieceTimeout: 3 * time.Second}})
	conn, _ := openRawSocket(t, h)
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	text := newNumberedMessage("big", strings.Repeat("a", 6<<20)) // more than the operating system buffers
	frame := []byte{0x81, 0xff, 0, 0, 0, 0, byte(len(text) >> 24), byte(len(text) >> 16), byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}
	if _, err := conn.Write(append(frame, text...)); err != nil { // the agent answers with the same text
		t.Fatal(err)
	}
	deadline := time.Now().Add(closeTimeout)
	for !strings.Contains(h.Log.String(), "route=/v1/agents/{agent}/stream status=101") {
		if time.Now().After(deadline) {
			t.Fatal("the conversation of a client that reads nothing goes on")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestSocketEnds checks that connections are closed when their clients lose access, with the close code for each
// reason.
func TestSocketEnds(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{KeepAlive: 50 * time.Millisecond}})
	h.CreateApp(t, "acme", slowConfig)
	h.CreateApp(t, "globex", slowConfig)
	ana := dialSocket(t, h, h.MintToken(t, "acme", authz.TokenSpec{Subject: "ana"}))
	ben := dialSocket(t, h, h.MintToken(t, "globex", authz.TokenSpec{Subject: "ben"}))
	open := dialSocket(t, h, "")
	short, err := h.Apps.LoadApp(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Apps.SuspendApp(t.Context(), audit.Actor{Name: "test"}, "acme", ""); err != nil {
		t.Fatal(err)
	}
	if code, _ := readUntilClosed(t, ana); code != websocket.StatusGoingAway {
		t.Errorf("of app %s, which was suspended: closed with %d, want 1001", short.Name, code)
	}
	if err := h.Apps.Tokens.Revoke(t.Context(), audit.Actor{Name: "test"}, "globex", "ben"); err != nil {
		t.Fatal(err)
	}
	if code, _ := readUntilClosed(t, ben); code != websocket.StatusPolicyViolation {
		t.Errorf("a revoked token: closed with %d, want 1008", code)
	}
	open.WriteFrame(newNumberedMessage("n", "never"))
	if _, err := open.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	go h.Server.EndStreams()
	code, receivedText := readUntilClosed(t, open)
	if code != websocket.StatusServiceRestart || strings.Contains(receivedText, "done") {
		t.Errorf("a server that stops: closed with %d after %s, want 1012", code, receivedText)
	}
	if s, resp := h.DialSocket(t, socketPath, "", websocket.DialOptions{}); s != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a server that stops accepts a connection: %s", resp.Status)
	}
}

// TestSocketAdmission checks that each message is authorized separately.
func TestSocketAdmission(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	h.CreateApp(t, "acme", slowConfig)
	s := dialSocket(t, h, h.MintToken(t, "acme", authz.TokenSpec{Subject: "otto", Roles: []string{"approver"}}))
	s.WriteFrame(newNumberedMessage("m", "hello"))
	if all := strings.Join(s.ReadAnswer(), ""); !strings.Contains(all, `"PERMISSION_DENIED"`) || !strings.Contains(all, `"messageId":"m","done":true`) {
		t.Errorf("an approver who calls got %s", all)
	}
	s.WriteFrame(`{"message": {"role": "user", "taskId": "nosuch", "parts": [{"data": {"type": "tool_approval", "decision": "approve"}}]}}`)
	if all := strings.Join(s.ReadAnswer(), ""); !strings.Contains(all, `"NOT_FOUND"`) {
		t.Errorf("an approver who decides about nothing got %s", all)
	}
}

// TestSocketResumes continues over HTTP after the last event of a connection that broke off.
func TestSocketResumes(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{})
	s := dialSocket(t, h, "")
	s.WriteFrame(newNumberedMessage("m", "slow"))
	var f struct {
		Task    struct{ ID string }
		EventID int64
	}
	for f.EventID < 2 {
		text, err := s.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			t.Fatal(err)
		}
	}
	s.CloseNow()
	_, remaining := h.Do(t, http.MethodGet, agentPath+"/tasks/"+f.Task.ID+":subscribe?format=response", "", nil, "Last-Event-ID", "2")
	if strings.Contains(remaining, "\nid: 2\n") || !strings.Contains(remaining, "two") || !strings.HasSuffix(remaining, "data: [DONE]\n\n") {
		t.Errorf("after event 2 came %s", remaining)
	}
}

// TestSocketLimits checks that each message counts against the app's limits, and that a refused message does not
// end the connection.
func TestSocketLimits(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{
		Default: slowConfig + "rate_limiting: {enabled: true, limits: [{type: count, window: month, limit: 2}]}\n",
	}, newRoutes)
	s := dialSocket(t, h, "")
	for i, want := range []string{"TASK_STATE_COMPLETED", "TASK_STATE_COMPLETED", "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED"} {
		s.WriteFrame(`{"message": {"contextId": "c", "role": "user", "parts": [{"text": "hello"}]}}`)
		if all := strings.Join(s.ReadAnswer(), ""); !strings.Contains(all, want) {
			t.Errorf("message %d got %s, want %s", i+1, all, want)
		}
	}
}

// TestSocketTrace checks that each message starts a trace of its own, separate from that of the connection.
func TestSocketTrace(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewSpanRecorder()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(seen)).Tracer("test")})
	s := dialSocket(t, h, "")
	for range 2 {
		s.WriteFrame(newNumberedMessage("", "hello"))
		s.ReadAnswer()
	}
	if n := h.Server.OpenStreams(); n != 1 {
		t.Errorf("%d streams are open, want the conversation", n)
	}
	if err := s.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	h.Server.EndStreams()
	traces := map[string]int{}
	for _, span := range seen.Ended() {
		if span.Name() == "MESSAGE /v1/agents/{agent}/stream" && len(span.Links()) == 1 {
			traces[span.SpanContext().TraceID().String()]++
		}
	}
	if len(traces) != 2 {
		t.Errorf("the messages' traces are %v, want two", traces)
	}
}

// TestObservedStreams checks that requests which open streams are distinguished from others.
func TestObservedStreams(t *testing.T) {
	t.Parallel()
	observed := make(chan surface.Observation, 3)
	h := newSlowFixture(t, v1.Options{}, surface.Options{Observe: func(o surface.Observation) { observed <- o }})
	requireStream := func(route string, want bool) {
		t.Helper()
		if o := <-observed; o.Stream != want || !strings.HasSuffix(o.Route, route) {
			t.Errorf("observed %+v, want %s as a stream: %t", o, route, want)
		}
	}
	h.Do(t, http.MethodPost, agentPath+"/message:send", "", newMessageBody("hello", ""))
	requireStream("/message:send", false)
	h.Do(t, http.MethodPost, agentPath+"/message:stream", "", newMessageBody("hello", ""))
	requireStream("/message:stream", true)
	s := dialSocket(t, h, "")
	if err := s.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Fatal(err)
	}
	requireStream("/stream", true)
}

// TestTrickle checks that a body that arrives a few bytes at a time is cut off, like one that stops.
func TestTrickle(t *testing.T) {
	t.Parallel()
	h := newSlowFixture(t, v1.Options{}, surface.Options{Timeouts: surface.Timeouts{PieceTimeout: closeTimeout, BodyTimeout: 300 * time.Millisecond}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST /v1/agents/assistant/message:send HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 20000000\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(closeTimeout))
	resp, err := http.ReadResponse(bufio.NewReader(keepSending(t, conn)), nil)
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Error(resp, err)
	}
}
