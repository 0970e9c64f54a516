package surface_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/surfacetest"
)

// http2Conn is a client's HTTP/2 connection without TLS, on which a test sends any frame.
type http2Conn struct {
	*http2.Framer
	t      *testing.T
	conn   net.Conn
	header bytes.Buffer
	hpack  *hpack.Encoder
}

// dialHTTP2 opens a connection to url and sends the preface with these settings.
func dialHTTP2(t *testing.T, url string, settings ...http2.Setting) *http2Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	w := &http2Conn{Framer: http2.NewFramer(conn, conn), t: t, conn: conn}
	w.hpack = hpack.NewEncoder(&w.header)
	_, err = io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = w.WriteSettings(settings...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sendGet sends a GET request on a stream. It returns the error of a connection that the server has closed.
func (c *http2Conn) sendGet(stream uint32, path string) error {
	c.header.Reset()
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", path}} {
		if err := c.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			c.t.Fatal(err)
		}
	}
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.header.Bytes(), EndStream: true, EndHeaders: true})
}

// readUntil reads frames until one is wanted, and acknowledges settings.
func (c *http2Conn) readUntil(wanted func(http2.Frame) bool) http2.Frame {
	c.t.Helper()
	for {
		f, err := c.ReadFrame()
		if err != nil {
			c.t.Fatalf("the server hung up: %v", err)
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			_ = c.WriteSettingsAck()
		}
		if wanted(f) {
			return f
		}
	}
}

// TestHTTP2Flood opens more streams than a connection may have, and on another connection opens and resets streams as
// fast as it can. The server must refuse them and go on answering others.
func TestHTTP2Flood(t *testing.T) {
	t.Parallel()
	h, _ := newFixture(t)
	many := dialHTTP2(t, h.URL)
	settings := many.readUntil(func(f http2.Frame) bool { _, ok := f.(*http2.SettingsFrame); return ok }).(*http2.SettingsFrame)
	maximum, _ := settings.Value(http2.SettingMaxConcurrentStreams)
	if maximum == 0 || maximum > 1000 {
		t.Fatalf("a connection may have %d streams", maximum)
	}
	for i := range maximum + 10 {
		if err := many.sendGet(2*i+1, "/slow"); err != nil {
			t.Fatal(err)
		}
	}
	refused := many.readUntil(func(f http2.Frame) bool { _, ok := f.(*http2.RSTStreamFrame); return ok }).(*http2.RSTStreamFrame)
	if refused.StreamID != 2*maximum+1 {
		t.Errorf("stream %d ended with %v", refused.StreamID, refused.ErrCode)
	}

	rapid := dialHTTP2(t, h.URL)
	for i := range uint32(5000) {
		if rapid.sendGet(2*i+1, "/slow") != nil || rapid.WriteRSTStream(2*i+1, http2.ErrCodeCancel) != nil {
			break // the server has closed the connection
		}
	}
	if resp, body := h.Do(t, http.MethodGet, "/who", "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("another address is answered %d %s", resp.StatusCode, body)
	}
}

// TestHTTP2SlowReader checks that the server resets the stream of a client that does not take its response, small or
// large, and keeps the connection.
func TestHTTP2SlowReader(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{Default: config, Surface: surface.Options{Timeouts: surface.Timeouts{PieceTimeout: 100 * time.Millisecond}}}, func(*surfacetest.Fixture) []surface.Route {
		answer := func(size int) surface.Handler {
			return func(w http.ResponseWriter, _ *http.Request) error {
				return response.WriteJSON(w, http.StatusOK, strings.Repeat("x", size))
			}
		}
		return []surface.Route{
			{Method: http.MethodGet, Pattern: "/small", Kind: surface.Open, Serve: answer(10)},
			{Method: http.MethodGet, Pattern: "/middle", Kind: surface.Open, Serve: answer(10 << 10)},
			{Method: http.MethodGet, Pattern: "/large", Kind: surface.Open, Serve: answer(1 << 20)},
		}
	})
	w := dialHTTP2(t, h.URL, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	for i, path := range []string{"/small", "/middle", "/large"} {
		stream := uint32(2*i + 1)
		if err := w.sendGet(stream, path); err != nil {
			t.Fatal(err)
		}
		w.readUntil(func(f http2.Frame) bool {
			_, reset := f.(*http2.RSTStreamFrame)
			return reset && f.Header().StreamID == stream
		})
	}
}
