package trigger

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
)

// decodePayload decodes the body of a delivery by its content type: JSON, also if the type is missing, a form, or text.
// Integers in JSON keep all digits up to 64 bits. An error is an error with [agentsvc.CodeInvalid].
func decodePayload(contentType string, body []byte) (any, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if contentType == "" {
		kind, err = "application/json", nil
	}
	switch {
	case err != nil:
		return nil, agentsvc.NewInvalidError("Content-Type", "is not one")
	case !utf8.Valid(body) || bytes.IndexByte(body, 0) >= 0:
		return nil, agentsvc.NewInvalidError("body", "must be UTF-8 text without NUL")
	case kind == "application/x-www-form-urlencoded":
		return decodeForm(string(body))
	case strings.HasPrefix(kind, "text/"):
		return string(body), nil
	case kind == "application/json", strings.HasSuffix(kind, "+json"):
		return decodeJSON(body)
	}
	return nil, agentsvc.NewInvalidError("Content-Type", "must be JSON, application/x-www-form-urlencoded or text")
}

// decodeJSON decodes one JSON value. An empty body is an empty object.
func decodeJSON(body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return map[string]any{}, nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, agentsvc.NewInvalidError("body", "is not JSON: %.120v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, agentsvc.NewInvalidError("body", "holds more than one JSON value")
	}
	return normalizeNumbers(v), nil
}

// normalizeNumbers replaces [json.Number] by int64 where possible, else by float64, so that templates print and compare
// numbers. It changes v.
func normalizeNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, nested := range v {
			v[key] = normalizeNumbers(nested)
		}
	case []any:
		for i, nested := range v {
			v[i] = normalizeNumbers(nested)
		}
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// decodeForm decodes a form. A name that occurs once is a string, any other a list.
func decodeForm(body string) (any, error) {
	values, err := url.ParseQuery(body)
	if err != nil {
		return nil, agentsvc.NewInvalidError("body", "is no form: %.120v", err)
	}
	form := map[string]any{}
	for name, list := range values {
		if len(list) == 1 {
			form[name] = list[0]
			continue
		}
		all := make([]any, len(list))
		for i, text := range list {
			all[i] = text
		}
		form[name] = all
	}
	return form, nil
}

// EncodeQuery returns the parameters of a URL's query as the body of a delivery that has none: a JSON object, in which a
// name that occurs once is a string and any other a list. An empty query is an empty body.
func EncodeQuery(query string) ([]byte, error) {
	if query == "" {
		return nil, nil
	}
	form, err := decodeForm(query)
	if err != nil {
		return nil, agentsvc.NewInvalidError("query", "is not a valid URL query")
	}
	return json.Marshal(form)
}

// lookupPath returns the value at a path of names, and of indices into lists, with dots between them.
func lookupPath(v any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			nested, ok := at[name]
			if !ok {
				return nil, false
			}
			v = nested
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// formatValue returns a value as text: a string as it is, anything else as JSON.
func formatValue(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return encodeJSON(v)
}

// encodeJSON returns v as JSON, without escaping for HTML: the text is read by a model.
func encodeJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	// Values that were decoded from JSON or a form can always be encoded.
	_ = e.Encode(v)
	return strings.TrimSpace(b.String())
}
