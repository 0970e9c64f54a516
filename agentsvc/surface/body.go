package surface

import (
	"bytes"
	"net/http"
	"slices"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/requestbody"
	"strconv"
	"time"
)

// ReadBody reads the request's body, see [Body.Read].
func ReadBody(r *http.Request) ([]byte, error) {
	rec := recordOf(r)
	body, err := rec.body.Read(r)
	rec.requestBytes = len(body)
	return body, err
}

// BodyOf returns the body of a request, for protocols and routes that read it themselves.
func BodyOf(r *http.Request) *requestbody.Body { return &recordOf(r).body }

// DecodeBody reads the request's body, one JSON object, and decodes it into v. Unknown members are errors: for
// endpoints of our own, where they are misspelled. An empty body leaves v as it is.
func DecodeBody(r *http.Request, v any) error {
	body, err := ReadBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return decode.JSON(body, v, true)
}

// DecodeMessage reads the request's body, one JSON object, and decodes it into v. Unknown members are ignored, since
// clients of other versions of a standard protocol send them.
func DecodeMessage(r *http.Request, v any) error {
	if err := decode.CheckContentType(r); err != nil {
		return err
	}
	body, err := ReadBody(r)
	if err != nil {
		return err
	}
	return decode.JSON(body, v, false)
}

// WriteJSON writes v as the response. If it returns an error, nothing was written.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	return encodeResponse(w, jsonMediaType, status, v)
}

// WriteMediaType writes v as JSON with a media type of its own.
func WriteMediaType(w http.ResponseWriter, kind string, v any) error {
	return encodeResponse(w, []string{kind}, http.StatusOK, v)
}

// encodeResponse encodes v and writes it as the response.
func encodeResponse(w http.ResponseWriter, kind []string, status int, v any) error {
	if rec, ok := w.(*requestRecord); ok && rec.requestBytes >= collectThreshold {
		collectGarbage() // the response may be as large as the body, whose decoded form is garbage now
	}
	var b bytes.Buffer
	if err := encode.AppendJSONLine(&b, v); err != nil {
		return err
	}
	return writeResponse(w, kind, status, b.Bytes())
}

// WriteEncoded writes a body that is already JSON as the response.
func WriteEncoded(w http.ResponseWriter, body []byte) error {
	return writeResponse(w, jsonMediaType, http.StatusOK, body)
}

// writeResponse reserves the memory for a whole response and writes it with a Content-Length. It returns an error, and
// has written nothing, if there is no memory.
func writeResponse(w http.ResponseWriter, kind []string, status int, body []byte) error {
	if err := reserveResponse(w, len(body)); err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = kind, []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	writePieces(w, body)
	return nil
}

const (
	// collectThreshold is the size of a request's body, in bytes, after which its garbage is collected before the
	// response is encoded.
	collectThreshold = 4 << 20

	pieceSize     = 64 << 10         // bytes of one write of a response, one read of a WebSocket message
	acceptTimeout = 30 * time.Second // how long a client may take to accept one piece of a response
	// corkThreshold is the size, in bytes, from which net/http writes a response in two system calls, headers and body,
	// because its own buffer has 4 KiB.
	corkThreshold = 8 << 10
)

// writePieces writes a response. A large one is written in pieces, each with a deadline of its own and all of them with
// one together; a smaller one that does not fit into net/http's buffer is corked, so that it leaves in as few segments
// as possible. Errors are not returned: the client is gone then.
func writePieces(w http.ResponseWriter, b []byte) {
	if len(b) <= pieceSize {
		if len(b) >= corkThreshold {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(acceptTimeout))
		}
		if rec, ok := w.(*requestRecord); ok && rec.conn != nil && len(b) >= corkThreshold {
			setCork(rec.conn, true)
			defer setCork(rec.conn, false)
		}
		_, _ = w.Write(b)
		return
	}
	rc, until := http.NewResponseController(w), responseDeadline(time.Now(), len(b))
	if rec := unwrapRecord(w); rec != nil {
		rec.responseDeadline = until
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

var jsonMediaType = []string{"application/json"}
