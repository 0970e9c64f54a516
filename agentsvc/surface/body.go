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

// Bounds of a request's body.
const (
	maxBody          = 1 << 20
	maxMessage       = 28 << 20
	collectThreshold = 4 << 20 // of which much is garbage when it is answered
)

// limitBody bounds the body that r's handler will read, and how long the client may pause while sending it.
func (s *Server) limitBody(rec *requestRecord, r *http.Request, route *Route) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	maximum := int64(maxBody)
	if route.LargeBody {
		maximum = maxMessage
	}
	rec.maxBodyBytes = maximum
	// The connection's own writer, since it closes the connection of a client that sends too much.
	body := http.MaxBytesReader(rec.ResponseWriter, r.Body, maximum)
	if r.ContentLength > maximum {
		body = oversizedBody{body, maximum}
	}
	r.Body = &timedBody{ReadCloser: body, controller: http.NewResponseController(rec.ResponseWriter), pieceTimeout: s.options.PieceTimeout, totalTimeout: s.options.BodyTimeout}
}

// oversizedBody is a body that says of itself that it is too long: none of it is read.
type oversizedBody struct {
	io.ReadCloser
	maxBytes int64
}

func (t oversizedBody) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: t.maxBytes} }

// timedBody is a body whose every piece must arrive in time, and so must the whole: a large one keeps others out.
type timedBody struct {
	io.ReadCloser
	controller                 *http.ResponseController
	pieceTimeout, totalTimeout time.Duration
	deadline                   time.Time   // zero = nothing has been read
	aborted                    atomic.Bool // by end
}

func (p *timedBody) Read(b []byte) (int, error) {
	now := time.Now()
	if p.deadline.IsZero() {
		p.deadline = now.Add(p.totalTimeout)
	}
	by := now.Add(p.pieceTimeout)
	if by.After(p.deadline) {
		by = p.deadline
	}
	_ = p.controller.SetReadDeadline(by) // not every connection can
	if p.aborted.Load() {                // after the deadline, which end may have set before
		return 0, ErrTooSlow
	}
	n, err := p.ReadCloser.Read(b)
	switch {
	case p.aborted.Load():
		return n, ErrTooSlow // the deadline stays: nobody waits for the rest
	case err != nil:
		_ = p.controller.SetReadDeadline(time.Time{})
	}
	return n, err
}

// abortRead ends the reading, at once. It may be called while somebody reads.
func (p *timedBody) abortRead() {
	p.aborted.Store(true)
	_ = p.controller.SetReadDeadline(expiredDeadline)
}

var expiredDeadline = time.Unix(1, 0) // the deadline of a body that is not read any more

// pauseTimeout is called when the body is not read for a while: its sender has as much time more.
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

// ReadBody reads the request's body, of which too much is refused and much waits for room. It must be JSON that countJSON lets pass,
// or empty.
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

// meterBody is how r's body comes in, whose room is in h.
func (rec *requestRecord) meterBody(r *http.Request, h *bodyReservation) *bodyMeter {
	a := newBodyMeter(r.Context(), rec.bodyBudget, rec.appID(), h, nil)
	if p, ok := r.Body.(*timedBody); ok { // not a copy of what was read before
		a.cutOff, a.pause = p.abortRead, p.pauseTimeout
	}
	return a
}

// describeReadError is what the caller is told of a body that could not be read.
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
		return agentsvc.NewInvalidError("Content-Type", "must be application/json")
	}
	return nil
}

// DecodeJSON reads one JSON object into v. Members that v does not have are refused where strict is set. Its errors say
// where and what.
func DecodeJSON(body []byte, v any, strict bool) error {
	if !utf8.Valid(body) { // RFC 8259, 8.1; and each byte that is none would become the three of U+FFFD
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

// validUTF8Prefix returns how many bytes at the beginning of b are UTF-8.
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

// unmarshalBody is json.Unmarshal, and with strict a decoder that refuses unknown members. That one reads body into a buffer of its own.
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
	if len(body) > maxBody { // a message, whose members are plain ones
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

// unknownMember returns the name of a member of the object in body that the struct v points to does not have, "" where there is none.
func unknownMember(body []byte, v any) string {
	var members map[string]AliasedJSON
	if json.Unmarshal(body, &members) != nil {
		return "" // it will be refused
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

func newTrailingDataError() error {
	return agentsvc.NewInvalidError("", "there is more after the JSON value")
}

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	return encodeResponse(w, jsonMediaType, status, v)
}

// WriteMediaType answers with v in a kind of JSON that has a media type of its own.
func WriteMediaType(w http.ResponseWriter, kind string, v any) error {
	return encodeResponse(w, []string{kind}, http.StatusOK, v)
}

func encodeResponse(w http.ResponseWriter, kind []string, status int, v any) error {
	if rec, ok := w.(*requestRecord); ok && rec.receivedBytes >= collectThreshold {
		collectGarbage() // the answer may repeat what was received: what that came in is no longer needed
	}
	var b bytes.Buffer
	if err := writeJSONLine(&b, v); err != nil {
		return err
	}
	return writeResponse(w, kind, status, b.Bytes())
}

// WriteEncoded answers with what is JSON already.
func WriteEncoded(w http.ResponseWriter, body []byte) error {
	return writeResponse(w, jsonMediaType, http.StatusOK, body)
}

// EncodeList returns an object whose first member, of that name, is a list of items which are JSON already, and which goes on
// with the members of rest, of which there is at least one.
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
		b.Bytes()[at] = ','
	}
	return b.Bytes(), err
}

// EncodeJSON returns v as it stands in answers.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := writeJSONLine(&b, v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// writeResponse writes a whole answer, or returns why it may not be in memory. Its length is said, so that it needs no chunks.
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
	pieceSize     = 64 << 10         // bytes
	acceptTimeout = 30 * time.Second // how long a client may take to accept a piece
	// corkThreshold is what net/http, whose own buffer has 4 KiB, writes in two parts: one with the headers, one with the rest.
	corkThreshold = 8 << 10
)

// writePieces writes an answer, for each piece of which the client has a limited time, and for the whole. A client that is gone needs none.
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
		_ = rc.SetWriteDeadline(by) // not every connection can
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

var jsonMediaType = []string{"application/json"}

// writeJSONLine writes v on one line, characters of HTML as they are.
func writeJSONLine(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	return nil
}
