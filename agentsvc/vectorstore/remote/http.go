package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/vectorstore"
)

// What an answer may have, in bytes: answerBase, entryBytes for each document that was asked for, and numberBytes for each
// number of their vectors where the API sends those, too.
const (
	answerBase  = 16 << 10
	entryBytes  = 512
	numberBytes = 24
)

// answerFactor is how many bytes are reserved for each byte of an answer: it exists as text, as a part of it while that is
// decoded, and as values.
const answerFactor = 4

// AnswerBytes returns how long the answer may be to a request for a number of documents, with so many numbers in their
// vectors.
func AnswerBytes(documents, numbers int) int {
	return answerBase + documents*entryBytes + numbers*numberBytes
}

// Client sends requests with JSON to one store. It is safe for concurrent use.
type Client struct {
	store   string // its type, for errors
	options Options
	base    string // scheme, host and port
	header  http.Header
}

// NewClient returns a client of the store of a type, whose usual port is port. header is sent with each request.
func NewClient(store string, o Options, port int, header http.Header) *Client {
	o = o.withDefaults(port)
	scheme := "http://"
	if o.EnableTLS {
		scheme = "https://"
	}
	header = header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json")
	return &Client{store, o, scheme + net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), header}
}

// Call sends in as JSON, or nothing if in is nil, to path and decodes the answer into out, unless out is nil. An answer of
// more than maxBytes ([AnswerBytes]) is an error; 0 means that of no document. Its memory is reserved from
// [Options].Memory before it is read. Status 404 is [ErrNotFound]; other errors are those of vectorstore.Store, or what an out that is an [Answer] makes of its body. The
// request is repeated if the store is not available.
func (c *Client) Call(ctx context.Context, method, path string, in, out any, maxBytes int) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode a request to the vector store (%s): %w", c.store, err)
		}
	}
	return repeatUnavailable(ctx, c.store, c.options.Timeout, func(ctx context.Context) error {
		return c.send(ctx, method, path, body, out, cmp.Or(maxBytes, AnswerBytes(0, 0)))
	})
}

// send sends one request.
func (c *Client) send(ctx context.Context, method, path string, body []byte, out any, maxBytes int) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return &vectorstore.RejectedError{Store: c.store, Message: "has no usable address: check host and port", Err: err}
	}
	req.Header = c.header.Clone()
	resp, err := c.options.Egress.HTTP().Do(req)
	if err != nil {
		return newConnectionError(c.store, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		// Reading the body lets the connection be reused. A page of another kind of server is not the answer that a
		// collection does not exist.
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if resp.StatusCode == http.StatusNotFound && len(text) > 0 && !json.Valid(text) {
			return NewInvalidAnswer(c.store)
		}
		return newStatusError(c.store, resp.StatusCode)
	}
	if out == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
		return nil
	}
	memory := c.options.newReservation()
	defer memory.ReleaseBytes()
	answer, err := memory.ReadAll(ctx, resp.Body, maxBytes)
	if err != nil {
		return newReadError(c.store, err, maxBytes)
	}
	if err := DecodeAnswer(c.store, answer, out); err != nil {
		return err
	}
	if answer, ok := out.(Answer); ok {
		return answer.Check()
	}
	return nil
}

// Answer is an answer whose body says whether the request succeeded. Check returns the errors that [Client.Call] does.
type Answer interface {
	Check() error
}

// DecodeAnswer decodes the text of an answer, or a part of it, into out.
func DecodeAnswer(store string, text []byte, out any) error {
	err := json.Unmarshal(text, out)
	switch {
	case errors.Is(err, errTooManyEntries):
		return newTooManyEntries(store)
	case err != nil:
		return NewInvalidAnswer(store)
	}
	return nil
}

// newReadError returns the error for an answer that could not be read.
func newReadError(store string, err error, maxBytes int) error {
	if errors.Is(err, capacity.ErrTooManyBytes) {
		return &vectorstore.RejectedError{Store: store, Message: fmt.Sprintf("answered with more than the %d bytes that the request can have: check that it is a %s server", maxBytes, store)}
	}
	if _, full := errors.AsType[*agentsvc.Error](err); full {
		return fmt.Errorf("read the answer of the vector store (%s): %w", store, err)
	}
	return newConnectionError(store, err)
}

// newTooManyEntries returns the error for an answer with more entries than were asked for.
func newTooManyEntries(store string) error {
	return &vectorstore.RejectedError{Store: store, Message: "answered with more documents than it was asked for: check that it is a " + store + " server"}
}

// NewInvalidAnswer returns the error for an answer that is not one of the store's type.
func NewInvalidAnswer(store string) error {
	return &vectorstore.RejectedError{Store: store, Message: "answered with an invalid response: check that host and port are those of a " + store + " server"}
}

// newStatusError returns the error for an HTTP status.
func newStatusError(store string, status int) error {
	switch {
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return NewRefusedKey(store)
	case status == http.StatusTooManyRequests, status >= 500:
		return &vectorstore.UnavailableError{Store: store, Message: fmt.Sprintf("it answered with HTTP %d", status)}
	}
	return NewRefusedRequest(store, fmt.Sprintf("HTTP %d", status))
}

// NewRefusedKey returns the error for a key that the store does not accept.
func NewRefusedKey(store string) error {
	return &vectorstore.RejectedError{Store: store, Message: "refused the API key: check api_key"}
}

// NewRefusedRequest returns the error for a request that the store refused for another reason, with its code.
func NewRefusedRequest(store, code string) error {
	return &vectorstore.RejectedError{Store: store, Message: "refused the request (" + code +
		"): check that its version is supported, and that its collection has vectors of the embedder's length"}
}
