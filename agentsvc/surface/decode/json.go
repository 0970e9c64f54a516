// Package decode has what protocols share when they decode requests: JSON within bounds and with errors that name the
// path of the field, the parts of a message, ids, page sizes and query parameters. Its errors are for callers.
package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
)

// JSON decodes one JSON object into v. If strict is set, unknown members are errors. Its errors are
// [apierror.CodeNotJSON] for a body that is not one JSON value in UTF-8, else [agentsvc.CodeInvalid] with the path of the
// field and what is wrong with it.
func JSON(body []byte, v any, strict bool) error {
	// RFC 8259, 8.1. encoding/json would replace each invalid byte by the three bytes of U+FFFD.
	if !utf8.Valid(body) {
		return agentsvc.NewError(apierror.CodeNotJSON, "the JSON is not UTF-8 at byte %d", validUTF8Prefix(body))
	}
	if len(body) == 0 {
		return agentsvc.NewError(apierror.CodeNotJSON, "the JSON is empty: it must be an object")
	}
	err := unmarshalBody(body, v, strict)
	if err == nil {
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	var own *agentsvc.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &wrong):
		return agentsvc.NewInvalidError(locateTypeError(body, v, wrong), "must be %s, not a JSON %s", describeType(wrong.Type), wrong.Value)
	case errors.As(err, &syntax):
		return agentsvc.NewError(apierror.CodeNotJSON, "not JSON at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return agentsvc.NewError(apierror.CodeNotJSON, "the JSON ends too early")
	}
	if name, ok := strings.CutPrefix(err.Error(), `json: unknown field "`); ok {
		return newUnknownFieldError(body, v, strings.TrimSuffix(name, `"`))
	}
	return agentsvc.NewInvalidError("", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// describeType returns the JSON that a type is decoded from, in words.
func describeType(t reflect.Type) string {
	switch kind := t.Kind(); {
	case kind == reflect.String:
		return "a text in quotes"
	case kind == reflect.Bool:
		return "true or false"
	case kind == reflect.Float32 || kind == reflect.Float64:
		return "a number"
	case kind >= reflect.Int && kind <= reflect.Uintptr:
		return "a whole number"
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "a text in base64"
	case kind == reflect.Slice || kind == reflect.Array:
		return "a list"
	}
	return "an object"
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
// unknown members. The decoder copies body into a buffer of its own; a large body is therefore checked by CheckMembers
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
	// Large bodies are messages, whose strictly decoded types are flat enough for CheckMembers.
	if len(body) > maxReread {
		if err := CheckMembers(body, v); err != nil {
			return err
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

// newTrailingDataError returns the error for a body with more than one JSON value.
func newTrailingDataError() error {
	return agentsvc.NewError(apierror.CodeNotJSON, "there is more after the JSON value")
}

// AliasedJSON is a JSON value that is part of the decoded body, where [json.RawMessage] would copy it: a message of 28
// MiB is then in memory once. The body must not be changed or reused while the value is.
type AliasedJSON []byte

// UnmarshalJSON keeps b without copying it. The contract of [json.Unmarshaler] demands a copy because b belongs to the
// caller; here the caller of json.Unmarshal owns the body and keeps it.
func (n *AliasedJSON) UnmarshalJSON(b []byte) error {
	*n = b
	return nil
}

// CheckContentType returns an error for a body whose Content-Type is not JSON. A body without one is taken for JSON.
func CheckContentType(r *http.Request) error {
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
