package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
)

// Bounds of a request's body.
const (
	maxBody    = 1 << 20
	largeBody  = 1 << 20 // what a body may have without asking for room
	maxMessage = 28 << 20
	maxDepth   = 64
	firstRead  = 64 << 10 // how much room a body is given on its word
)

// limit bounds the body that r's handler will read, and how long the client may pause while sending it.
func (s *Server) limit(rec *record, r *http.Request, route *Route) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	most := int64(maxBody)
	if route.Messages {
		most = maxMessage
	}
	// The connection's own writer, since it closes the connection of a client that sends too much.
	body := http.MaxBytesReader(rec.ResponseWriter, r.Body, most)
	if r.ContentLength > most {
		body = tooLong{body, most}
	}
	r.Body = &paced{ReadCloser: body, pace: http.NewResponseController(rec.ResponseWriter), stall: s.options.Stall, whole: s.options.Arrive}
}

// tooLong is a body that says of itself that it is too long: none of it is read.
type tooLong struct {
	io.ReadCloser
	most int64
}

func (t tooLong) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: t.most} }

// paced is a body whose every piece must arrive in time, and so must the whole: a large one keeps others out.
type paced struct {
	io.ReadCloser
	pace         *http.ResponseController
	stall, whole time.Duration
	until        time.Time // zero = nothing has been read
}

func (p *paced) Read(b []byte) (int, error) {
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(p.whole)
	}
	by := now.Add(p.stall)
	if by.After(p.until) {
		by = p.until
	}
	_ = p.pace.SetReadDeadline(by) // not every connection can
	n, err := p.ReadCloser.Read(b)
	if err != nil {
		_ = p.pace.SetReadDeadline(time.Time{})
	}
	return n, err
}

// ReadBody reads the request's body, of which too much is refused and much waits for room. It must be JSON no deeper than 64 levels, or empty.
func ReadBody(r *http.Request) ([]byte, error) {
	body, err := take(r.Body, r.ContentLength, func() error { return recordOf(r).roomFor(r) })
	var large *http.MaxBytesError
	var own *refusal
	switch {
	case err == nil:
		return body, checkDepth(body)
	case errors.As(err, &own):
		return nil, err
	case errors.As(err, &large):
		return nil, &refusal{
			code: ResourceExhausted, status: http.StatusRequestEntityTooLarge,
			text: fmt.Sprintf("the body is too large, %d MiB are allowed", large.Limit>>20),
		}
	}
	return nil, &refusal{code: InvalidArgument, status: http.StatusBadRequest, text: "the body did not arrive whole"}
}

// take reads a body that says that it has size bytes, -1 = it does not say. A large one waits for room.
func take(r io.Reader, size int64, room func() error) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(size, 0), firstRead)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(r, largeBody))
	if err == nil && b.Len() == largeBody {
		if err = room(); err == nil {
			_, err = b.ReadFrom(r)
		}
	}
	return b.Bytes(), err
}

// DecodeBody reads the request's body, one JSON object without unknown members, into v. An empty body leaves v as it is.
func DecodeBody(r *http.Request, v any) error {
	body, err := ReadBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return DecodeJSON(body, v, true)
}

// DecodeMessage reads the request's body, one JSON object, into v. Members that v does not have are passed over, as clients
// of other versions send them.
func DecodeMessage(r *http.Request, v any) error {
	if err := checkContentType(r); err != nil {
		return err
	}
	body, err := ReadBody(r)
	if err != nil {
		return err
	}
	return DecodeJSON(body, v, false)
}

// checkContentType refuses a body that says of itself that it is no JSON. One that says nothing is taken for JSON.
func checkContentType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return agentsvc.Invalid("Content-Type", "must be application/json")
	}
	return nil
}

// checkDepth refuses JSON that is nested too deeply, before anything is made of it.
func checkDepth(body []byte) error {
	depth, inString := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return InvalidRequest(fmt.Sprintf("the JSON is nested more than %d levels deep", maxDepth))
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// DecodeJSON reads one JSON object into v. Members that v does not have are refused where strict is set. Its errors say
// where and what.
func DecodeJSON(body []byte, v any, strict bool) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return agentsvc.Invalid("", "there is more after the JSON value")
		}
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var own *agentsvc.InvalidError
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &wrong):
		return agentsvc.Invalid(spotOf(body, wrong), "a JSON %s cannot stand here", wrong.Value)
	case errors.As(err, &syntax):
		return agentsvc.Invalid("", "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return agentsvc.Invalid("", "the JSON ends too early")
	}
	if name, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
		return strayed(body, v, strings.TrimSuffix(name, `"`))
	}
	return agentsvc.Invalid("", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	return writeAs(w, jsonType, status, v)
}

// WriteKind answers with v in a kind of JSON that has a media type of its own.
func WriteKind(w http.ResponseWriter, kind string, v any) error {
	return writeAs(w, []string{kind}, http.StatusOK, v)
}

func writeAs(w http.ResponseWriter, kind []string, status int, v any) error {
	var b bytes.Buffer
	if err := encodeJSON(&b, v); err != nil {
		return err
	}
	writeBody(w, kind, status, b.Bytes())
	return nil
}

// WriteMade answers with what is JSON already.
func WriteMade(w http.ResponseWriter, body []byte) { writeBody(w, jsonType, http.StatusOK, body) }

// JSONList returns an object whose first member, of that name, is a list of items which are JSON already, and which goes on
// with the members of rest, of which there is at least one.
func JSONList(name string, items [][]byte, rest any) ([]byte, error) {
	size := len(name) + 512
	for _, item := range items {
		size += len(item) + 1
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	b.WriteString(`{"` + name + `":[`)
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
	at := b.Len()
	err := encodeJSON(b, rest)
	if err == nil {
		b.Bytes()[at] = ','
	}
	return b.Bytes(), err
}

// JSON returns v as it stands in answers.
func JSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := encodeJSON(&b, v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// writeBody writes a whole answer. Its length is said, so that it needs no chunks.
func writeBody(w http.ResponseWriter, kind []string, status int, body []byte) {
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = kind, []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	send(w, body)
}

const (
	piece = 64 << 10         // bytes
	taken = 30 * time.Second // how long a client may take to accept a piece
	// long is what net/http, whose own buffer has 4 KiB, writes in two parts: one with the headers, one with the rest.
	long = 8 << 10
)

// send writes an answer, for each piece of which the client has a limited time. A client that is gone needs none.
func send(w http.ResponseWriter, b []byte) {
	if len(b) <= piece {
		if rec, ok := w.(*record); ok && rec.conn != nil && len(b) >= long {
			cork(rec.conn, true)
			defer cork(rec.conn, false)
		}
		_, _ = w.Write(b)
		return
	}
	rc := http.NewResponseController(w)
	for part := range slices.Chunk(b, piece) {
		_ = rc.SetWriteDeadline(time.Now().Add(taken)) // not every connection can
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

var jsonType = []string{"application/json"}

// encodeJSON writes v on one line, characters of HTML as they are.
func encodeJSON(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	return nil
}
