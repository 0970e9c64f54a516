package response

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// WriteJSON writes v as the response. If it returns an error, nothing was written.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	return writeEncodable(w, jsonMediaType, status, v)
}

// WriteMediaType writes v as JSON with a media type of its own; "" = application/json.
func WriteMediaType(w http.ResponseWriter, status int, kind string, v any) error {
	if kind == "" {
		return WriteJSON(w, status, v)
	}
	return writeEncodable(w, []string{kind}, status, v)
}

// writeEncodable encodes v and writes it as the response.
func writeEncodable(w http.ResponseWriter, kind []string, status int, v any) error {
	if to, ok := w.(*Writer); ok && to.RequestBytes >= collectThreshold {
		collectGarbage() // the response may be as large as the body, whose decoded form is garbage now
	}
	e := json.NewEncoder(&lineWriter{w, kind, status})
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	return nil
}

// lineWriter writes a response from the buffer of a [json.Encoder], which hands over a value in a single Write. A copy
// of it would be as large as the response: of a task with a text of 16 MiB, 16 MiB.
type lineWriter struct {
	w      http.ResponseWriter
	kind   []string
	status int
}

// Write implements [io.Writer].
func (l *lineWriter) Write(line []byte) (int, error) {
	return len(line), writeBody(l.w, l.kind, l.status, line)
}

// WriteYAML writes a text of YAML as the response.
func WriteYAML(w http.ResponseWriter, text []byte) error {
	return writeBody(w, yamlMediaType, http.StatusOK, text)
}

// WriteEncoded writes a body that is already JSON as the response.
func WriteEncoded(w http.ResponseWriter, body []byte) error {
	return writeBody(w, jsonMediaType, http.StatusOK, body)
}

// WriteContent writes the content of a file as the response. Pages must not execute it: browsers neither guess another
// type nor show it as a page of this server.
func WriteContent(w http.ResponseWriter, mediaType string, content []byte) error {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	return writeBody(w, []string{mediaType}, http.StatusOK, content)
}

// writeBody reserves the memory for a whole response and writes it with a Content-Length. It returns an error, and
// has written nothing, if there is no memory.
func writeBody(w http.ResponseWriter, kind []string, status int, body []byte) error {
	if err := reserve(w, len(body)); err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = kind, []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	WritePieces(w, body)
	return nil
}

const (
	// collectThreshold is the size of a request's body, in bytes, after which its garbage is collected before the
	// response is encoded.
	collectThreshold = 4 << 20

	pieceSize     = 64 << 10         // bytes of one write of a response
	acceptTimeout = 30 * time.Second // how long a client may take to accept one piece of a response
	// deadlineThreshold is the size, in bytes, from which a response has a write deadline.
	deadlineThreshold = 8 << 10
)

// WritePieces writes a response. A large one is written in pieces, each with a deadline of its own and all of them with
// one together. Errors are not returned: the client is gone then.
func WritePieces(w http.ResponseWriter, b []byte) {
	if len(b) <= pieceSize {
		if len(b) >= deadlineThreshold {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(acceptTimeout))
		}
		_, _ = w.Write(b)
		return
	}
	rc, until := http.NewResponseController(w), responseDeadline(time.Now(), len(b))
	if to := unwrapWriter(w); to != nil {
		to.deadline = until
	}
	for part := range slices.Chunk(b, pieceSize) {
		by := time.Now().Add(acceptTimeout)
		if until.Before(by) {
			by = until
		}
		_ = rc.SetWriteDeadline(by) // fails on connections without deadlines, as in tests
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

// The media types of responses, as header values.
var (
	jsonMediaType = []string{"application/json"}
	yamlMediaType = []string{"application/yaml"} // RFC 9512
)
