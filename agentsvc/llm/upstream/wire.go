package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/http"
)

// SendJSON sends body as JSON to url with the headers that header adds, nil for none. The caller closes the body of the
// response. client is one that [Vendor.NewClient] returned.
func SendJSON(ctx context.Context, client *http.Client, url string, header http.Header, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	return client.Do(req)
}

// Lenient is a field of an answer that counts as missing if its value has another type: servers of other vendors that offer
// a protocol differ in details.
type Lenient[T any] struct {
	Value T
	// Valid reports that there is a value.
	Valid bool
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Lenient[T]) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	var value T
	if json.Unmarshal(raw, &value) == nil {
		*l = Lenient[T]{value, true}
	}
	return nil
}

// LenientInt is a number of an answer that some servers write as 1.0. What is no number is 0.
type LenientInt int64

// UnmarshalJSON implements [json.Unmarshaler].
func (n *LenientInt) UnmarshalJSON(raw []byte) error {
	const exact = 1 << 53 // up to which a float64 has each whole number
	var value float64
	if json.Unmarshal(raw, &value) == nil {
		*n = LenientInt(math.Max(-exact, math.Min(value, exact)))
	}
	return nil
}
