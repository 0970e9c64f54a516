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

// Socket is a client's WebSocket connection; its methods fail the test on errors.
type Socket struct {
	*websocket.Conn
	t testing.TB
}

// DialSocket opens a WebSocket at path, or returns the HTTP response by which the server refused it. The connection
// is closed at the end of the test.
func (f *Fixture) DialSocket(t testing.TB, path, credential string, o websocket.DialOptions) (*Socket, *http.Response) {
	t.Helper()
	if o.HTTPHeader == nil {
		o.HTTPHeader = http.Header{}
	}
	if credential != "" {
		o.HTTPHeader.Set("Authorization", "Bearer "+credential)
	}
	ctx, cancel := withFrameTimeout(t)
	defer cancel()
	conn, resp, err := websocket.Dial(ctx, f.URL+path, &o)
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		return nil, resp
	}
	// The library's limit of 32 KiB is smaller than answers may be.
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &Socket{conn, t}, resp
}

// withFrameTimeout returns a context that bounds the wait for one frame. It is longer than the server's default
// timeout for a piece of data (30 seconds), so that the server gives up first.
func withFrameTimeout(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), 40*time.Second)
}

// WriteFrame sends a text frame.
func (s *Socket) WriteFrame(text string) {
	s.t.Helper()
	ctx, cancel := withFrameTimeout(s.t)
	defer cancel()
	must(s.t, s.Write(ctx, websocket.MessageText, []byte(text)))
}

// ReadFrame returns the text of the next frame, or the error with which the server closed the connection.
func (s *Socket) ReadFrame() (string, error) {
	s.t.Helper()
	ctx, cancel := withFrameTimeout(s.t)
	defer cancel()
	_, body, err := s.Read(ctx)
	return string(body), err
}

// ReadAnswer returns the frames up to the one with done, which ends an answer.
func (s *Socket) ReadAnswer() (frames []string) {
	s.t.Helper()
	for {
		text, err := s.ReadFrame()
		must(s.t, err)
		frames = append(frames, text)
		var f struct{ Done bool }
		must(s.t, json.Unmarshal([]byte(text), &f))
		if f.Done {
			return frames
		}
	}
}

// exchangeFrames opens a WebSocket, sends each frame after the one before has been answered, and returns the frames
// received, one per line; or the HTTP response if the connection was refused.
func (f *Fixture) exchangeFrames(t testing.TB, path, credential string, frames []string, headers ...string) string {
	t.Helper()
	o := websocket.DialOptions{HTTPHeader: http.Header{}}
	for i := 0; i+1 < len(headers); i += 2 {
		o.HTTPHeader.Set(headers[i], headers[i+1])
	}
	s, resp := f.DialSocket(t, path, credential, o)
	if s == nil {
		defer resp.Body.Close()
		return formatAnswer(resp, "")
	}
	var received []string
	for _, frame := range frames {
		s.WriteFrame(frame)
		received = append(received, joinChunks(s.ReadAnswer())...)
	}
	must(t, s.Close(websocket.StatusNormalClosure, ""))
	return strings.Join(received, "\n") + "\n"
}
