package stoa

import (
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

	"stoa/bench/load"
)

// Stream is one open connection over which messages are sent, one after the other, and their events read.
type Stream struct {
	// First sends a message, reads all events of its task and returns how long the first one took.
	First func(ctx context.Context) (time.Duration, error)
	Close func()
}

// ErrBroken is wrapped by the error of a stream that ends without its task's end.
var ErrBroken = errors.New("the stream ends too early")

// Events is a stream of server-sent events.
func (s *Server) Events(ctx context.Context, token, agent, text string) (*Stream, error) {
	t, err := s.Stream(token, agent, text, "data:", `completed`)
	if err != nil {
		return nil, err
	}
	c, err := load.Dial(ctx, t)
	if err != nil {
		return nil, err
	}
	return &Stream{
		First: func(ctx context.Context) (time.Duration, error) {
			timing, err := c.Call(ctx, t)
			return timing.First, err
		},
		Close: func() { _ = c.Close() },
	}, nil
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
	body := fmt.Appendf(nil, `{"message":{"role":"user","parts":[{"text":%q}]}}`, text)
	return &Stream{First: func(ctx context.Context) (first time.Duration, err error) {
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
			MessageId: strconv.Itoa(sent), Role: pb.Role_ROLE_USER, Parts: []*pb.Part{{Content: &pb.Part_Text{Text: text}}},
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
