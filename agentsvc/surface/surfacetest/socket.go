package surfacetest

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// Socket is a client's end of a WebSocket.
type Socket struct {
	*websocket.Conn
	t testing.TB
}

// Dial opens a WebSocket, or returns the answer by which it was refused.
func (h *House) Dial(t testing.TB, path, credential string, o websocket.DialOptions) (*Socket, *http.Response) {
	t.Helper()
	if o.HTTPHeader == nil {
		o.HTTPHeader = http.Header{}
	}
	if credential != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+credential)
	}
	ctx, cancel := patience(t)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, h.URL+path, &o)
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		return nil, resp
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &Socket{conn, t}, resp
}

// patience is how long a test waits for a frame.
func patience(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 40*time.Second)
}

// Say sends a frame.
func (s *Socket) Say(text string) {
	s.t.Helper()
	ctx, cancel := patience(s.t)
	defer cancel()
	must(s.t, s.Write(ctx, websocket.MessageText, []byte(text)))
}

// Hear waits for a frame and returns its text, or how the server closed the connection.
func (s *Socket) Hear() (string, error) {
	s.t.Helper()
	ctx, cancel := patience(s.t)
	defer cancel()
	_, body, err := s.Read(ctx)
	return string(body), err
}

// HearAll returns the frames up to the last one of an answer.
func (s *Socket) HearAll() (frames []string) {
	s.t.Helper()
	for {
		text, err := s.Hear()
		must(s.t, err)
		frames = append(frames, text)
		var f struct{ Done bool }
		must(s.t, json.Unmarshal([]byte(text), &f))
		if f.Done {
			return frames
		}
	}
}

// converse sends frames, each when the one before has been answered, and shows what came.
func (h *House) converse(t testing.TB, path, credential string, frames []string, headers ...string) string {
	t.Helper()
	o := websocket.DialOptions{HTTPHeader: http.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		o.HTTPHeader.Set(headers[i], headers[i+1])
	}
	s, resp := h.Dial(t, path, credential, o)
	if s == nil {
		defer resp.Body.Close()
		return show(resp, "")
	}
	var heard []string
	for _, frame := range frames {
		s.Say(frame)
		heard = append(heard, joinChunks(s.HearAll())...)
	}
	must(t, s.Close(websocket.StatusNormalClosure, ""))
	return strings.Join(heard, "\n") + "\n"
}
