package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"stoa/agentsvc"
)

// Bounds of a request's body, see "Bounds on what comes in" in docs/security.md.
const (
	maxBody    = 1 << 20  // bytes of a body on most routes
	maxMessage = 28 << 20 // bytes of a body on routes with LargeBody, which take messages with files
	// collectThreshold is the size of a body, in bytes, after which its garbage is collected before the response is
	// encoded.
	collectThreshold = 4 << 20
)

// limitBody replaces r.Body by one that is bounded in size and time, and sets rec.maxBodyBytes. It does not read it.
func (s *Server) limitBody(rec *requestRecord, r *http.Request, route *Route) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	maximum := int64(maxBody)
	if route.LargeBody {
		maximum = maxMessage
	}
	rec.maxBodyBytes = maximum
	// The connection's own writer lets MaxBytesReader close the connection of a client that sends too much.
	body := http.MaxBytesReader(rec.ResponseWriter, r.Body, maximum)
	if r.ContentLength > maximum {
		body = oversizedBody{body, maximum}
	}
	r.Body = &timedBody{ReadCloser: body, controller: http.NewResponseController(rec.ResponseWriter), pieceTimeout: s.options.PieceTimeout, totalTimeout: s.options.BodyTimeout}
}

// oversizedBody is a body whose Content-Length exceeds maxBytes. Reading it fails at once, without waiting for the
// client.
type oversizedBody struct {
	io.ReadCloser
	maxBytes int64
}

func (t oversizedBody) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: t.maxBytes} }

// timedBody is a body of which each piece must arrive within pieceTimeout and the whole within totalTimeout. It uses
// the connection's read deadline. Without it a slow sender would keep its reservation for as long as it likes.
type timedBody struct {
	io.ReadCloser
	controller                 *http.ResponseController
	pieceTimeout, totalTimeout time.Duration
	// deadline is when the whole body must have arrived; zero = nothing has been read yet. Only the reader writes it.
	deadline time.Time
	// aborted is set by abortRead, from another goroutine.
	aborted atomic.Bool
}

// Read implements [io.Reader]. It returns ErrTooSlow once abortRead was called.
func (p *timedBody) Read(b []byte) (int, error) {
	now := time.Now()
	if p.deadline.IsZero() {
		p.deadline = now.Add(p.totalTimeout)
	}
	by := now.Add(p.pieceTimeout)
	if by.After(p.deadline) {
		by = p.deadline
	}
	// abortRead sets aborted before the deadline. So either it sets its deadline after this one and ends the read
	// below, or the check below sees aborted. An error means that the connection has no deadlines, as in tests.
	_ = p.controller.SetReadDeadline(by)
	if p.aborted.Load() {
		return 0, ErrTooSlow
	}
	n, err := p.ReadCloser.Read(b)
	switch {
	case p.aborted.Load():
		return n, ErrTooSlow // the expired deadline stays: the rest of the body is not read
	case err != nil:
		_ = p.controller.SetReadDeadline(time.Time{})
	}
	return n, err
}

// abortRead ends a read that is under way, at once, and makes every later one fail. Any goroutine may call it.
func (p *timedBody) abortRead() {
	p.aborted.Store(true)
	_ = p.controller.SetReadDeadline(expiredDeadline)
}

// expiredDeadline is a read deadline that has always passed.
var expiredDeadline = time.Unix(1, 0)

// pauseTimeout suspends the deadlines while the server does not read for reasons of its own. resume extends the
// deadline of the whole body by the time that has passed. Only the reader calls them.
func (p *timedBody) pauseTimeout() (resume func()) {
	began := time.Now()
	_ = p.controller.SetReadDeadline(time.Time{})
	return func() {
		if !p.deadline.IsZero() {
			p.deadline = p.deadline.Add(time.Since(began))
		}
		by := time.Now().Add(p.pieceTimeout)
		if p.aborted.Load() {
			by = expiredDeadline
		}
		_ = p.controller.SetReadDeadline(by)
	}
}

// ReadBody reads the request's body and reserves the memory for it and its JSON values. It may wait, for at most
// bodyBudgetWait at each step and for the app's rate. The result is JSON within the bounds of countJSON, not validated
// any further, or empty. The errors are for the caller: too large, too many values, too slow, or 429 if there is no
// memory.
func ReadBody(r *http.Request) ([]byte, error) {
	rec := recordOf(r)
	in := &countedBody{Reader: r.Body}
	a := rec.meterBody(r, &rec.bodyReservation)
	body, err := readMetered(in, r.ContentLength, rec.maxBodyBytes, a)
	switch {
	case in.refused != nil:
		a.chargeRefused(in.counter.totalValues())
		return nil, in.refused
	case err != nil:
		return nil, describeReadError(err)
	}
	rec.receivedBytes = len(body)
	return body, rec.bodyReservation.reserveDecoded(r.Context(), rec.bodyBudget, rec.appID(), len(body), in.counter.totalValues())
}

// meterBody returns the meter for r's body, whose memory is reserved in h.
func (rec *requestRecord) meterBody(r *http.Request, h *bodyReservation) *bodyMeter {
	a := newBodyMeter(r.Context(), rec.bodyBudget, rec.appID(), h, nil)
	if p, ok := r.Body.(*timedBody); ok { // else the body was read before, and r.Body is a copy in memory
		a.cutOff, a.pause = p.abortRead, p.pauseTimeout
	}
	return a
}

// describeReadError returns the error for the caller for err, which reading a body returned.
func describeReadError(err error) error {
	var large *http.MaxBytesError
	var own *responseError
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &large):
		return &responseError{
			code: ResourceExhausted, status: http.StatusRequestEntityTooLarge,
			text: fmt.Sprintf("the body is too large, %d MiB are allowed", large.Limit>>20),
		}
	}
	return &responseError{code: InvalidArgument, status: http.StatusBadRequest, text: "the body did not arrive whole"}
}

// DecodeBody reads the request's body, one JSON object, and decodes it into v. Unknown members are errors: for
// endpoints of our own, where they are misspelled. An empty body leaves v as it is.
func DecodeBody(r *http.Request, v any) error {
	body, err := ReadBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return DecodeJSON(body, v, true)
}

// DecodeMessage reads the request's body, one JSON object, and decodes it into v. Unknown members are ignored, since
// clients of other versions of a standard protocol send them.
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

// checkContentType returns an error for a body whose Content-Type is not JSON. A body without one is taken for JSON.
func checkContentType(r *http.Request) error {
	given := r.Header.Get("Content-Type")
	if given == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(given)
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return agentsvc.NewInvalidError("Content-Type", "must be application/json")
	}
	return nil
}

// DecodeJSON decodes one JSON object into v. If strict is set, unknown members are errors. Its errors are
// [*agentsvc.InvalidError] with the path of the field and what is wrong with it.
func DecodeJSON(body []byte, v any, strict bool) error {
	// RFC 8259, 8.1. encoding/json would replace each invalid byte by the three bytes of U+FFFD.
	if !utf8.Valid(body) {
		return agentsvc.NewInvalidError("", "the JSON is not UTF-8 at byte %d", validUTF8Prefix(body))
	}
	err := unmarshalBody(body, v, strict)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var own *agentsvc.InvalidError
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &wrong):
		return agentsvc.NewInvalidError(locateTypeError(body, wrong), "a JSON %s cannot stand here", wrong.Value)
	case errors.As(err, &syntax):
		return agentsvc.NewInvalidError("", "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return agentsvc.NewInvalidError("", "the JSON ends too early")
	}
	if name, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
		return newUnknownFieldError(body, v, strings.TrimSuffix(name, `"`))
	}
	return agentsvc.NewInvalidError("", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// validUTF8Prefix returns how many bytes at the beginning of b are valid UTF-8.
func validUTF8Prefix(b []byte) (n int) {
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return n
}

// unmarshalBody decodes body into v with [json.Unmarshal], or if strict is set with a [json.Decoder] that refuses
// unknown members. The decoder copies body into a buffer of its own; a large body is therefore checked by unknownMember
// instead.
func unmarshalBody(body []byte, v any, strict bool) error {
	if !strict {
		err := json.Unmarshal(body, v)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			switch {
			case strings.HasSuffix(err.Error(), "after top-level value"):
				return newTrailingDataError()
			case syntax.Offset >= int64(len(body)) && strings.HasPrefix(err.Error(), "unexpected end"):
				return io.ErrUnexpectedEOF
			}
		}
		return err
	}
	// Large bodies are messages, whose strictly decoded types are flat enough for unknownMember.
	if len(body) > maxBody {
		if name := unknownMember(body, v); name != "" {
			return fmt.Errorf("json: unknown field %q", name)
		}
		return unmarshalBody(body, v, false)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return newTrailingDataError()
		}
	}
	return err
}

// unknownMember returns the name of a member of the object in body that the struct which v points to does not have, ""
// if it has all of them. It does not look into members.
func unknownMember(body []byte, v any) string {
	var members map[string]AliasedJSON
	if json.Unmarshal(body, &members) != nil {
		return "" // the caller's json.Unmarshal will fail as well
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		delete(members, name)
	}
	for name := range members {
		return name
	}
	return ""
}

// newTrailingDataError returns the error for a body with more than one JSON value.
func newTrailingDataError() error {
	return agentsvc.NewInvalidError("", "there is more after the JSON value")
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
	if rec, ok := w.(*requestRecord); ok && rec.receivedBytes >= collectThreshold {
		collectGarbage() // the response may be as large as the body, whose decoded form is garbage now
	}
	e := json.NewEncoder(&responseLine{w, kind, status})
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	return nil
}

// responseLine writes a response from the buffer of a [json.Encoder], which hands over a value in a single Write. A copy
// of it would be as large as the response: of a task with a text of 16 MiB, 16 MiB.
type responseLine struct {
	w      http.ResponseWriter
	kind   []string
	status int
}

// Write implements [io.Writer].
func (l *responseLine) Write(line []byte) (int, error) {
	return len(line), writeResponse(l.w, l.kind, l.status, line)
}

// WriteEncoded writes a body that is already JSON as the response.
func WriteEncoded(w http.ResponseWriter, body []byte) error {
	return writeResponse(w, jsonMediaType, http.StatusOK, body)
}

// EncodeList returns a JSON object whose first member, name, is the list of items, which are JSON already, followed by
// the members of remaining, an object with at least one member. It copies each item once.
func EncodeList(name string, items [][]byte, remaining any) ([]byte, error) {
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
	err := writeJSONLine(b, remaining)
	if err == nil {
		// The "{" of remaining becomes the comma between the members.
		b.Bytes()[at] = ','
	}
	return b.Bytes(), err
}

// EncodeJSON returns v encoded as in responses: without escapes for HTML.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := writeJSONLine(&b, v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
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

// writeJSONLine appends v to b as one line of JSON, without escapes for HTML.
func writeJSONLine(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	return nil
}
