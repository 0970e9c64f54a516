package a2agrpc

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf16"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2apb/v1/pbconv"
	"google.golang.org/protobuf/encoding/protojson"
)

// CanonicalCard returns what a signature of a card in JSON is over (A2A 1.0, 8.4.1): the members that version 1.0 knows, as its Protocol
// Buffers write them, without signatures and, as the official libraries have it, without what is empty, in the form of RFC 8785.
func CanonicalCard(card []byte) ([]byte, error) {
	c := &spec.AgentCard{}
	if err := json.Unmarshal(card, c); err != nil {
		return nil, err
	}
	c.Signatures = nil
	pb, err := pbconv.ToProtoAgentCard(c)
	if err != nil {
		return nil, err
	}
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

// dropEmpty returns v without the empty texts, lists and objects in it, nil where nothing is left.
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

// writeCanonical writes a JSON value in the form of RFC 8785. Numbers Go writes as that wants them.
func writeCanonical(b *bytes.Buffer, v any) (err error) {
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
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

// writeString escapes no more of s than JSON must (RFC 8785, 3.2.2.2).
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
