// Package jsonrpc frames JSON-RPC 2.0 over HTTP for the protocols that use it: [Endpoint] reads a request, finds its
// [Method] and writes the result or the error.
package jsonrpc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/idempotency"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/sse"
)

// Call is one JSON-RPC request while it is answered. One goroutine uses it.
type Call struct {
	// Method and Params are set by readRequest. Params aliases the body; DecodeParams clears it.
	Method string
	Params json.RawMessage
	// id is the request's id as JSON; null until it is known and for a request without one.
	id json.RawMessage
	// notification says that the request has no id: its response has no body.
	notification bool
	w            http.ResponseWriter
	r            *http.Request
	endpoint     *Endpoint
	// eventsOnly says that the client accepts event streams only, so that errors must be one as well.
	eventsOnly bool
}

// AcceptEventStream says that the method answers with an event stream. If the client accepts nothing else, an error is
// then written as a stream with one event, since some official clients of A2A do not read any other response.
func (c *Call) AcceptEventStream() {
	accept := c.r.Header.Get("Accept")
	c.eventsOnly = strings.Contains(accept, sse.MediaType) && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*")
}

// ID returns the request's id as the client wrote it, in JSON, "" if it has none.
func (c *Call) ID() string {
	if string(c.id) == "null" {
		return ""
	}
	return string(c.id)
}

// IsNotification reports whether the request has no id. A method then runs and does not wait for a task: the response,
// which [Call.WriteResult] writes, has no body, and neither has that of an error.
func (c *Call) IsNotification() bool { return c.notification }

// WriteResult writes the response with a result.
func (c *Call) WriteResult(result any) error {
	if c.notification {
		return c.writeNoBody()
	}
	return response.WriteJSON(c.w, http.StatusOK, c.EncodeResult(result))
}

// writeNoBody writes the response to a notification.
func (c *Call) writeNoBody() error {
	c.w.WriteHeader(cmp.Or(c.endpoint.NotificationStatus, http.StatusNoContent))
	return nil
}

// WriteError writes an error that is not in errorTable, with an HTTP status.
func (c *Call) WriteError(status, code int, message string, data any) error {
	return response.WriteJSON(c.w, status, rpcErrorResponse{"2.0", c.id, rpcErrorObject{code, message, data}})
}

// DecodeParams decodes the params, which must be an object, into v; unknown members are ignored. It can be called once:
// it drops the params, so that a stream does not keep the message that opened it in memory.
func (c *Call) DecodeParams(v any) error {
	params := c.Params
	if c.Params = nil; len(params) == 0 || params[0] != '{' {
		return agentsvc.NewInvalidError("params", "must be an object")
	}
	return decode.JSON(params, v, false)
}

// DecodeKnownParams is [Call.DecodeParams] for a method whose unknown params are errors, see [decode.CheckMembers].
func (c *Call) DecodeKnownParams(v any, nested ...string) error {
	if err := decode.CheckMembers(c.Params, v, nested...); err != nil {
		return err
	}
	return c.DecodeParams(v)
}

// EncodeError returns the response with err, for streams, whose events are responses.
func (c *Call) EncodeError(err error) any {
	return c.newFaultResponse(apierror.NewFault(surface.RequestID(c.r), err))
}

// EncodeResult returns the response with a result, for streams, whose events are responses.
func (c *Call) EncodeResult(result any) any {
	return rpcResponse{"2.0", c.id, result}
}

// Method answers one JSON-RPC request, by c.WriteResult or by a stream, or returns an error and then has written
// nothing.
type Method func(w http.ResponseWriter, r *http.Request, c *Call) error

// NewHandler returns the [surface.Handler] of an [Endpoint] whose methods depend on their names only. find returns nil
// for a name that the endpoint does not have.
func NewHandler(find func(method string) Method) surface.Handler {
	return Endpoint{FindMethod: func(_ *http.Request, name string) (Method, error) { return find(name), nil }}.Serve
}

// Endpoint configures how a protocol answers JSON-RPC requests over HTTP.
type Endpoint struct {
	// FindMethod returns the method for a request, nil if the endpoint does not have it, or an error, such as for an
	// unsupported version of the protocol.
	FindMethod func(r *http.Request, method string) (Method, error)
	// EncodeErrorData returns the data member of an error; nil = an object with the fault's details.
	EncodeErrorData func(apierror.Fault) any
	// HasPlainErrors reports whether the errors of a method are encoded as without EncodeErrorData; nil = none are. The
	// method is "" for a request that could not be read.
	HasPlainErrors func(method string) bool
	// ErrorStatus returns the HTTP status of an error response; nil = 200.
	ErrorStatus func(*http.Request, apierror.Fault) int
	// NeedsID reports whether a method may not be called without an id; nil = every method can be a notification.
	NeedsID func(method string) bool
	// NotificationStatus is the HTTP status of the response to a notification; 0 = 204.
	NotificationStatus int
}

// Serve is the [surface.Handler] of the endpoint: it reads one request, finds its method and calls it. Errors become
// JSON-RPC errors, except those that every protocol answers by an HTTP status (see respondError).
func (e Endpoint) Serve(w http.ResponseWriter, r *http.Request) error {
	c := &Call{id: json.RawMessage("null"), w: w, r: r, endpoint: &e}
	err := c.readRequest()
	if err == nil && c.notification && e.NeedsID != nil && e.NeedsID(c.Method) {
		c.notification = false
		err = agentsvc.NewError(apierror.CodeMalformed, "a call of %.64q needs an id", c.Method)
	}
	if err == nil {
		var m Method
		switch m, err = e.FindMethod(r, c.Method); {
		case err != nil:
		case m == nil:
			err = agentsvc.NewError(apierror.CodeNoMethod, "there is no method %.64q", c.Method)
		default:
			err = m(w, r, c)
		}
	}
	return c.respondError(err)
}

// respondError writes err as a JSON-RPC error and returns nil. It returns err itself, to be written by writeError, if
// it is about access or capacity, if the app or the agent does not exist, if a response has begun, or if the client
// disconnected.
func (c *Call) respondError(err error) error {
	if err == nil {
		return nil
	}
	v := apierror.Classify(err)
	if v.IsHTTPError() || errors.Is(err, apierror.ErrNoAgent) || errors.Is(err, apierror.ErrNoApp) || surface.HasResponse(c.r) || c.r.Context().Err() != nil {
		return err
	}
	surface.ReportError(c.r, err)
	if c.notification {
		return c.writeNoBody()
	}
	reported := v.ToFault(surface.RequestID(c.r))
	fault := c.newFaultResponse(reported)
	if c.eventsOnly {
		return sse.WriteSingle(c.w, fault)
	}
	status := http.StatusOK
	if c.endpoint.ErrorStatus != nil {
		status = c.endpoint.ErrorStatus(c.r, reported)
	}
	return response.WriteJSON(c.w, status, fault)
}

// rpcResponse is a response with a result.
type rpcResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
}

// rpcErrorResponse is a response with an error.
type rpcErrorResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   rpcErrorObject  `json:"error"`
}

// rpcErrorObject is the error of a response. Data is what EncodeErrorData returns, else the fault's details.
type rpcErrorObject struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

// newFaultResponse returns the response for f. Without EncodeErrorData its message is the code's standard one, and the
// text of f is added to the details as "detail".
func (c *Call) newFaultResponse(f apierror.Fault) rpcErrorResponse {
	isPlain := c.endpoint.HasPlainErrors != nil && c.endpoint.HasPlainErrors(c.Method)
	if encode := c.endpoint.EncodeErrorData; encode != nil && !isPlain {
		return rpcErrorResponse{"2.0", c.id, rpcErrorObject{f.RPC, f.FullMessage(), encode(f)}}
	}
	f.Details["detail"] = f.Text
	return rpcErrorResponse{"2.0", c.id, rpcErrorObject{f.RPC, f.Title, f.Details}}
}

// NewIdempotentMethod returns m as a method that takes effect once under an Idempotency-Key. The id of the call is part
// of the request: a repetition must have the same, since the stored response contains it.
func NewIdempotentMethod(m Method) Method {
	return func(w http.ResponseWriter, r *http.Request, c *Call) error {
		key, err := idempotency.Key(r)
		switch {
		case err != nil:
			return err
		case key == "":
			return m(w, r, c)
		}
		content := fmt.Appendf(nil, "%s %s %s", c.id, c.Method, c.Params)
		return surface.ExecuteOnce(w, r, key, content, func(w http.ResponseWriter, r *http.Request) error {
			// The recorder must see the response.
			c.w = w
			return m(w, r, c)
		})
	}
}

// readRequest reads the body and decodes the request.
func (c *Call) readRequest() error {
	if err := decode.CheckContentType(c.r); err != nil {
		return agentsvc.NewError(apierror.CodeMalformed, "%s", err)
	}
	body, err := surface.ReadBody(c.r)
	if err != nil {
		return err
	}
	return c.decodeEnvelope(body)
}

// decodeEnvelope decodes the members of a request. It sets c.id as soon as that is valid, so that an error about
// another member is answered under it, as JSON-RPC demands. Batches are refused.
func (c *Call) decodeEnvelope(body []byte) error {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) > 0 && body[0] == '{':
	case !json.Valid(body):
		return newParseError(body)
	case body[0] == '[':
		return agentsvc.NewError(apierror.CodeMalformed, "batches are not supported, send one call at a time")
	default:
		return agentsvc.NewError(apierror.CodeMalformed, "a call is a JSON object")
	}
	var members struct {
		Version json.RawMessage    `json:"jsonrpc"`
		ID      json.RawMessage    `json:"id"`
		Method  json.RawMessage    `json:"method"`
		Params  decode.AliasedJSON `json:"params"`
	}
	if json.Unmarshal(body, &members) != nil {
		return newParseError(body)
	}
	if id := members.ID; len(id) > 0 {
		if id[0] == '{' || id[0] == '[' || id[0] == 't' || id[0] == 'f' {
			return agentsvc.NewError(apierror.CodeMalformed, "id must be a string, a number or null")
		}
		c.id = id
	}
	if string(members.Version) != `"2.0"` {
		return agentsvc.NewError(apierror.CodeMalformed, `jsonrpc must be "2.0"`)
	}
	if json.Unmarshal(members.Method, &c.Method) != nil || c.Method == "" {
		return agentsvc.NewError(apierror.CodeMalformed, "method must be the name of a method")
	}
	if c.notification = len(members.ID) == 0; string(members.Params) != "null" {
		c.Params = json.RawMessage(members.Params)
	}
	return nil
}

// newParseError returns a parse error that says where body is not JSON.
func newParseError(body []byte) error {
	var v json.RawMessage
	if err := decode.JSON(body, &v, false); err != nil {
		return agentsvc.NewError(apierror.CodeNotJSON, "%s", err)
	}
	return agentsvc.NewError(apierror.CodeNotJSON, "not JSON")
}
