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

	"stoa/agentsvc"
)

// Bounds of a request's body.
const (
	maxBody    = 1 << 20
	maxMessage = 28 << 20
	echoed     = 4 << 20 // of which much is garbage when it is answered
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
	rec.most = most
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
	until        time.Time   // zero = nothing has been read
	ended        atomic.Bool // by end
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
	if p.ended.Load() {            // after the deadline, which end may have set before
		return 0, ErrSlow
	}
	n, err := p.ReadCloser.Read(b)
	switch {
	case p.ended.Load():
		return n, ErrSlow // the deadline stays: nobody waits for the rest
	case err != nil:
		_ = p.pace.SetReadDeadline(time.Time{})
	}
	return n, err
}

// end ends the reading, at once. It may be called while somebody reads.
func (p *paced) end() {
	p.ended.Store(true)
	_ = p.pace.SetReadDeadline(ended)
}

var ended = time.Unix(1, 0) // the deadline of a body that is not read any more

// pause is called when the body is not read for a while: its sender has as much time more.
func (p *paced) pause() (resume func()) {
	began := time.Now()
	_ = p.pace.SetReadDeadline(time.Time{})
	return func() {
		if !p.until.IsZero() {
			p.until = p.until.Add(time.Since(began))
		}
		by := time.Now().Add(p.stall)
		if p.ended.Load() {
			by = ended
		}
		_ = p.pace.SetReadDeadline(by)
	}
}

// ReadBody reads the request's body, of which too much is refused and much waits for room. It must be JSON that countJSON lets pass,
// or empty.
func ReadBody(r *http.Request) ([]byte, error) {
	rec := recordOf(r)
	in := &countedBody{Reader: r.Body}
	a := rec.arrival(r, &rec.held)
	body, err := takeBody(in, r.ContentLength, rec.most, a)
	switch {
	case in.refused != nil:
		a.refuse(in.counter.count())
		return nil, in.refused
	case err != nil:
		return nil, unread(err)
	}
	rec.received = len(body)
	return body, rec.held.takeValues(r.Context(), rec.rooms, rec.tenant(), len(body), in.counter.count())
}

// arrival is how r's body comes in, whose room is in h.
func (rec *record) arrival(r *http.Request, h *hold) *arrival {
	a := newArrival(r.Context(), rec.rooms, rec.tenant(), h, nil)
	if p, ok := r.Body.(*paced); ok { // not a copy of what was read before
		a.cut, a.pause = p.end, p.pause
	}
	return a
}

// unread is what the caller is told of a body that could not be read.
func unread(err error) error {
	var large *http.MaxBytesError
	var own *refusal
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &large):
		return &refusal{
			code: ResourceExhausted, status: http.StatusRequestEntityTooLarge,
			text: fmt.Sprintf("the body is too large, %d MiB are allowed", large.Limit>>20),
		}
	}
	return &refusal{code: InvalidArgument, status: http.StatusBadRequest, text: "the body did not arrive whole"}
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

// DecodeJSON reads one JSON object into v. Members that v does not have are refused where strict is set. Its errors say
// where and what.
func DecodeJSON(body []byte, v any, strict bool) error {
	err := decode(body, v, strict)
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

// decode is json.Unmarshal, and with strict a decoder that refuses unknown members. That one reads body into a buffer of its own.
func decode(body []byte, v any, strict bool) error {
	if !strict {
		err := json.Unmarshal(body, v)
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			switch {
			case strings.HasSuffix(err.Error(), "after top-level value"):
				return errSecond()
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
		return decode(body, v, false)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			return errSecond()
		}
	}
	return err
}

// unknownMember returns the name of a member of the object in body that the struct v points to does not have, "" where there is none.
func unknownMember(body []byte, v any) string {
	var members map[string]Within
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

func errSecond() error { return agentsvc.Invalid("", "there is more after the JSON value") }

// WriteJSON answers with v.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	return writeAs(w, jsonType, status, v)
}

// WriteKind answers with v in a kind of JSON that has a media type of its own.
func WriteKind(w http.ResponseWriter, kind string, v any) error {
	return writeAs(w, []string{kind}, http.StatusOK, v)
}

func writeAs(w http.ResponseWriter, kind []string, status int, v any) error {
	if rec, ok := w.(*record); ok && rec.received >= echoed {
		collectReceived() // the answer may repeat what was received: what that came in is no longer needed
	}
	var b bytes.Buffer
	if err := encodeJSON(&b, v); err != nil {
		return err
	}
	return writeBody(w, kind, status, b.Bytes())
}

// WriteMade answers with what is JSON already.
func WriteMade(w http.ResponseWriter, body []byte) error {
	return writeBody(w, jsonType, http.StatusOK, body)
}

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

// writeBody writes a whole answer, or returns why it may not be in memory. Its length is said, so that it needs no chunks.
func writeBody(w http.ResponseWriter, kind []string, status int, body []byte) error {
	if err := hasRoom(w, len(body)); err != nil {
		return err
	}
	h := w.Header()
	h["Content-Type"], h["Content-Length"] = kind, []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	send(w, body)
	return nil
}

const (
	piece = 64 << 10         // bytes
	taken = 30 * time.Second // how long a client may take to accept a piece
	// long is what net/http, whose own buffer has 4 KiB, writes in two parts: one with the headers, one with the rest.
	long = 8 << 10
)

// send writes an answer, for each piece of which the client has a limited time, and for the whole. A client that is gone needs none.
func send(w http.ResponseWriter, b []byte) {
	if len(b) <= piece {
		if len(b) >= long {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(taken))
		}
		if rec, ok := w.(*record); ok && rec.conn != nil && len(b) >= long {
			cork(rec.conn, true)
			defer cork(rec.conn, false)
		}
		_, _ = w.Write(b)
		return
	}
	rc, until := http.NewResponseController(w), wholeBy(time.Now(), len(b))
	if rec := recordIn(w); rec != nil {
		rec.until = until
	}
	for part := range slices.Chunk(b, piece) {
		by := time.Now().Add(taken)
		if until.Before(by) {
			by = until
		}
		_ = rc.SetWriteDeadline(by) // not every connection can
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
