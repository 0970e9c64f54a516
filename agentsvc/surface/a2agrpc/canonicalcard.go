package a2agrpc

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf16"

	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2apb/v1/pbconv"
	"google.golang.org/protobuf/encoding/protojson"
)

// CanonicalCard returns the bytes that the signature of a card covers (A2A 1.0, 8.4.1): the members of version 1.0
// as its Protocol Buffers encode them, without signatures and empty members, in canonical JSON (RFC 8785). card is
// a card in JSON; members that version 1.0 does not have are dropped. Dropping empty members follows the official
// libraries: a signature that covered them would not verify there.
func CanonicalCard(card []byte) ([]byte, error) {
	c, err := a2av0.NewAgentCardParser()(card)
	if err != nil {
		return nil, err
	}
	c.Signatures = nil
	pb, err := pbconv.ToProtoAgentCard(c)
	if err != nil {
		return nil, err
	}
	// protojson adds random spaces on purpose; decoding its output and writing it again removes them.
	raw, err := protojson.Marshal(pb)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = writeCanonical(&b, dropEmpty(v))
	return b.Bytes(), err
}

// dropEmpty removes empty texts, lists and objects from v, recursively and in place, and returns v, or nil if
// nothing is left.
func dropEmpty(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		var list []any
		for _, one := range v {
			if one = dropEmpty(one); one != nil {
				list = append(list, one)
			}
		}
		if list == nil {
			return nil
		}
		return list
	case map[string]any:
		for name, one := range v {
			if v[name] = dropEmpty(one); v[name] == nil {
				delete(v, name)
			}
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

// writeCanonical appends a JSON value in canonical form (RFC 8785). encoding/json formats numbers as RFC 8785
// requires (the rules of ECMAScript).
func writeCanonical(b *bytes.Buffer, v any) (err error) {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		// RFC 8785 sorts by UTF-16 code units, which differs from the byte order of UTF-8 beyond U+FFFF.
		slices.SortFunc(names, func(x, y string) int { return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y))) })
		b.WriteByte('{')
		for i, name := range names {
			if i > 0 {
				b.WriteByte(',')
			}
			writeString(b, name)
			b.WriteByte(':')
			if err = writeCanonical(b, v[name]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, one := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err = writeCanonical(b, one); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case string:
		writeString(b, v)
	default:
		raw, err := json.Marshal(v)
		b.Write(raw)
		return err
	}
	return nil
}

// writeString appends s with only the escapes that RFC 8785, 3.2.2.2 prescribes. encoding/json would escape more,
// such as U+2028.
func writeString(b *bytes.Buffer, s string) {
	const short = "\b\t\n\f\r"
	b.WriteByte('"')
	for _, r := range s {
		switch i := bytes.IndexRune([]byte(short), r); {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case i >= 0:
			b.WriteString(`\` + "btnfr"[i:i+1])
		case r < ' ':
			const hex = "0123456789abcdef"
			b.WriteString(`\u00` + hex[r>>4:r>>4+1] + hex[r&15:r&15+1])
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}
