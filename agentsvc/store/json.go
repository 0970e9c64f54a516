package store

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"runtime"
	"strings"
	"unsafe"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"stoa/agentsvc"
)

// encodeJSON returns v as JSON that decodeJSON reads; size is the approximate number of bytes of v's texts, files and
// values. Only characters that JSON requires to be escaped are escaped: [json.Marshal] would write six bytes for each
// "<". A large value is encoded with WriteJSON, because encoding/json has up to four copies of it in memory and keeps
// one for its next call.
func encodeJSON(v any, size int) (string, error) {
	if size < streamThreshold {
		var b strings.Builder
		b.Grow(size + 256)
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		err := e.Encode(v)
		return strings.TrimSuffix(b.String(), "\n"), err
	}
	if size >= collectThreshold {
		runtime.GC() // frees the request's body and what was decoded from it, which are as large as the value
	}
	var b bytes.Buffer
	b.Grow(size + size/3 + 4096) // a quarter to spare: the encoder then writes into the buffer and never grows it
	err := WriteJSON(&b, v)
	raw := b.Bytes()
	return unsafe.String(unsafe.SliceData(raw), len(raw)), err // saves a copy; safe because nothing writes to b any more
}

// Sizes in bytes from which encodeJSON streams, and from which it collects garbage before.
const (
	streamThreshold  = 256 << 10
	collectThreshold = 4 << 20
)

// WriteJSON writes v to w as [json.Marshal] would, but without escapes that JSON does not require.
func WriteJSON(w io.Writer, v any) error { return jsonv2.MarshalWrite(w, v, marshalOptions) }

// marshalOptions are encoding/json's behaviour without its escapes for HTML and JavaScript. An empty json.Number is
// written as 0, as encoding/json does.
var marshalOptions = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.EscapeForJS(false), jsonv2.WithMarshalers(
	jsonv2.MarshalToFunc(func(e *jsontext.Encoder, n json.Number) error { return e.WriteValue(jsontext.Value(cmp.Or(n, "0"))) }),
))

// encodedSize returns the approximate size of a message's JSON without names and brackets.
func encodedSize(m *agentsvc.Message) (n int) {
	if m == nil {
		return 0
	}
	for _, p := range m.Parts {
		n += len(p.Text)
		if p.File != nil {
			n += base64.StdEncoding.EncodedLen(len(p.File.Bytes))
		}
		if p.Data != nil {
			n += valueSize(p.Data.Value)
		}
	}
	n += valueSize(m.Metadata)
	for i := range m.PriorMessages {
		n += encodedSize(&m.PriorMessages[i])
	}
	return n
}

// valueSize returns the approximate size of the JSON of a value that [json.Unmarshal] decoded.
func valueSize(v any) (n int) {
	switch v := v.(type) {
	case string:
		return len(v) + 2
	case map[string]any:
		for name, member := range v {
			n += len(name) + 4 + valueSize(member)
		}
	case []any:
		for _, item := range v {
			n += 1 + valueSize(item)
		}
	default:
		return 8
	}
	return n
}

// decodeJSON decodes a body. It accepts what encoding/json writes, including duplicate names and invalid UTF-8 in the
// arguments of a tool call, which are stored as they came. It uses go-json-experiment, the successor of
// encoding/json, which reads a long text once instead of three times.
func decodeJSON(body []byte, to any) error {
	return jsonv2.Unmarshal(body, to, unmarshalOptions)
}

// unmarshalOptions accept what rows may contain although the JSON specification advises against it.
var unmarshalOptions = jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
