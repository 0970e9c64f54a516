package surface

import (
	"bytes"
	"net/http"

	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/requestbody"
)

// ReadBody reads the request's body, see [requestbody.Body.Read].
func ReadBody(r *http.Request) ([]byte, error) {
	rec := recordOf(r)
	body, err := rec.body.Read(r)
	rec.writer.RequestBytes = len(body)
	return body, err
}

// ReadFile reads the request's body on a route with [Route].File, see [requestbody.Body.ReadFile].
func ReadFile(r *http.Request) ([]byte, error) {
	rec := recordOf(r)
	body, err := rec.body.ReadFile(r)
	rec.writer.RequestBytes = len(body)
	return body, err
}

// BodyOf returns the body of a request, for protocols and routes that read it themselves.
func BodyOf(r *http.Request) *requestbody.Body { return &recordOf(r).body }

// DecodeBody reads the request's body, one JSON object, and decodes it into v. Unknown members are errors: for
// endpoints of our own, where they are misspelled. An empty body leaves v as it is.
func DecodeBody(r *http.Request, v any) error {
	body, err := ReadBody(r)
	if err != nil || len(bytes.TrimSpace(body)) == 0 {
		return err
	}
	return decode.JSON(body, v, true)
}

// DecodeMessage reads the request's body, one JSON object, and decodes it into v. Unknown members are ignored, since
// clients of other versions of a standard protocol send them.
func DecodeMessage(r *http.Request, v any) error {
	if err := decode.CheckContentType(r); err != nil {
		return err
	}
	body, err := ReadBody(r)
	if err != nil {
		return err
	}
	return decode.JSON(body, v, false)
}
