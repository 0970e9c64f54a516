package stoa

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// Stream is one open connection over which messages are sent, one after the other, and their events read. Each message
// has an id of its own, as gRPC wants it.
type Stream struct {
	// First sends a message, reads all events of its task and returns how long the first one took.
	First func(ctx context.Context) (time.Duration, error)
	Close func()
}

// ErrBroken is wrapped by the error of a stream that ends without its task's end.
var ErrBroken = errors.New("the stream ends too early")

// Events is a connection for server-sent events.
func (s *Server) Events(_ context.Context, token, agent, text string) (*Stream, error) {
	transport, sent := &http.Transport{MaxConnsPerHost: 1}, 0
	return &Stream{First: func(ctx context.Context) (first time.Duration, err error) {
		sent++
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message:stream","params":{"message":{"message_id":"e%d","role":"user","parts":[{"type":"text","text":%q}]}}}`, sent, text)
		start := time.Now()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/agents/"+agent, strings.NewReader(body))
		if err != nil {
			return 0, err
		}
		r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
		answer, err := transport.RoundTrip(r)
		if err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
		defer answer.Body.Close()
		last, lines := "", bufio.NewScanner(answer.Body)
		for lines.Scan() {
			if event, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if last = event; first == 0 {
					first = time.Since(start)
				}
			}
		}
		switch {
		case lines.Err() != nil:
			return 0, fmt.Errorf("read an event: %w", lines.Err())
		case !strings.Contains(last, `"completed"`):
			return 0, fmt.Errorf("%w: %d %.300s", ErrBroken, answer.StatusCode, last)
		}
		return first, nil
	}, Close: transport.CloseIdleConnections}, nil
}

// Socket is a WebSocket.
func (s *Server) Socket(ctx context.Context, token, agent, text string) (*Stream, error) {
	header := http.Header{"Authorization": {"Bearer " + token}}
	//nolint:bodyclose // the library says that there is nothing to close
	conn, _, err := websocket.Dial(ctx, strings.Replace(s.URL, "http", "ws", 1)+"/v1/agents/"+agent+"/stream", &websocket.DialOptions{HTTPHeader: header})
	if err != nil {
		return nil, fmt.Errorf("open a WebSocket: %w", err)
	}
	conn.SetReadLimit(-1)
	sent := 0
	return &Stream{First: func(ctx context.Context) (first time.Duration, err error) {
		sent++
		body := fmt.Appendf(nil, `{"message":{"messageId":"w%d","role":"user","parts":[{"text":%q}]}}`, sent, text)
		start := time.Now()
		if err := conn.Write(ctx, websocket.MessageText, body); err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
		for {
			_, raw, err := conn.Read(ctx)
			if err != nil {
				return 0, fmt.Errorf("read a frame: %w", err)
			}
			if first == 0 {
				first = time.Since(start)
			}
			var f struct {
				Done  bool
				Error json.RawMessage
			}
			switch err := json.Unmarshal(raw, &f); {
			case err != nil || f.Error != nil:
				return 0, fmt.Errorf("%w: %.300s", ErrBroken, raw)
			case f.Done:
				return first, nil
			}
		}
	}, Close: func() { _ = conn.CloseNow() }}, nil
}

// Calls is a connection for gRPC.
func (s *Server) Calls(_ context.Context, token, agent, text string) (*Stream, error) {
	conn, err := grpc.NewClient(s.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("open a connection for gRPC: %w", err)
	}
	client, sent := pb.NewA2AServiceClient(conn), 0
	return &Stream{First: func(ctx context.Context) (first time.Duration, err error) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token, "agent-name", agent))
		defer cancel()
		sent++
		start := time.Now()
		events, err := client.SendStreamingMessage(ctx, &pb.SendMessageRequest{Message: &pb.Message{
			MessageId: "g" + strconv.Itoa(sent), Role: pb.Role_ROLE_USER, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: text}}},
		}})
		if err != nil {
			return 0, fmt.Errorf("send: %w", err)
		}
		for last := pb.TaskState_TASK_STATE_UNSPECIFIED; ; {
			ev, err := events.Recv()
			switch {
			case errors.Is(err, io.EOF) && last == pb.TaskState_TASK_STATE_COMPLETED:
				return first, nil
			case errors.Is(err, io.EOF):
				return 0, fmt.Errorf("%w, in the state %v", ErrBroken, last)
			case err != nil:
				return 0, fmt.Errorf("read an event: %w", err)
			case first == 0:
				first = time.Since(start)
			}
			if u := ev.GetStatusUpdate(); u != nil {
				last = u.GetStatus().GetState()
			}
		}
	}, Close: func() { _ = conn.Close() }}, nil
}
