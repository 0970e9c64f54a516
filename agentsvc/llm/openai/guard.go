package openai

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/option"
)

const (
	// maxEvent bounds one server-sent event: what stands between two empty lines.
	maxEvent = 8 << 20
	// lastLine ends a completion, blanks aside.
	lastLine = "data:[DONE]"
	// What may follow lastLine is read only as far as this.
	drainBytes = 4 << 10
	drainTime  = 100 * time.Millisecond
)

var _ option.Middleware = (*Provider)(nil).guard

// guard stands between the client and the network: it says less about this machine on the way out, and lets in only
// answers with status 200, whose events are not too long.
func (p *Provider) guard(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	for name := range req.Header {
		if strings.HasPrefix(name, "X-Stainless-") {
			req.Header.Del(name)
		}
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("User-Agent", "stoa")
	resp, err := next(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, p.status(resp)
	}
	resp.Body = &events{ReadCloser: resp.Body}
	return resp, nil
}

// events is a body of server-sent events (HTML living standard, section 9.2) that ends in an error where one is too
// long.
type events struct {
	io.ReadCloser
	size int    // of the event that is being read
	line []byte // the start of the line that is being read
	last bool   // the line that ends a completion was read
	end  bool   // the body's end was read
}

func (e *events) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	for _, b := range p[:n] {
		e.size++
		switch {
		case b == '\n':
			if len(e.line) == 0 {
				e.size = 0
			}
			e.last = e.last || string(e.line) == lastLine
			e.line = e.line[:0]
		case b != '\r' && b != ' ' && len(e.line) <= len(lastLine):
			e.line = append(e.line, b)
		}
	}
	if e.size > maxEvent {
		return 0, errTooLong
	}
	e.end = e.end || errors.Is(err, io.EOF)
	return n, err
}

// Close closes the body. It reads what little may follow a whole completion, so that the connection can be used again.
func (e *events) Close() error {
	if e.last && !e.end {
		late := time.AfterFunc(drainTime, func() { _ = e.ReadCloser.Close() })
		defer late.Stop()
		_, _ = io.CopyN(io.Discard, e.ReadCloser, drainBytes)
	}
	return e.ReadCloser.Close()
}
