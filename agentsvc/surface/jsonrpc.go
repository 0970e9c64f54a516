package surface

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc"
)

// The error codes of JSON-RPC 2.0, and behind them those of A2A.
const (
	rpcParse          = -32700
	rpcInvalidRequest = -32600
	rpcMethodNotFound = -32601
	rpcInvalidParams  = -32602
	rpcInternal       = -32603

	rpcTaskNotFound  = -32001
	rpcNotCancelable = -32002
	rpcNoPush        = -32003
	rpcUnsupported   = -32004
	rpcContentType   = -32005
	rpcVersion       = -32009
)

// rpcMessages are what the codes say; what happened stands in the detail.
var rpcMessages = map[int]string{
	rpcParse:          "Parse error",
	rpcInvalidRequest: "Invalid request",
	rpcMethodNotFound: "Method not found",
	rpcInvalidParams:  "Invalid params",
	rpcInternal:       "Internal error",
	rpcTaskNotFound:   "Task not found",
	rpcNotCancelable:  "Task cannot be cancelled",
	rpcNoPush:         "Push notifications are not supported",
	rpcUnsupported:    "This operation is not supported",
	rpcContentType:    "Incompatible content types",
	rpcVersion:        "This version of the protocol is not supported",
}

// rpcError is an error that is born with its JSON-RPC code.
type rpcError struct {
	code   int
	detail string
}

// Error returns the detail.
func (e *rpcError) Error() string { return e.detail }

// NewInvalidRequestError returns the error for a call that lacks what its method cannot do without.
func NewInvalidRequestError(detail string) error { return &rpcError{rpcInvalidRequest, detail} }

// RPC is one JSON-RPC call under way.
type RPC struct {
	Method          string
	Params          json.RawMessage
	id              json.RawMessage
	w               http.ResponseWriter
	r               *http.Request
	encodeErrorData func(Fault) any
	errorStatus     func(*http.Request, Fault) int
	eventsOnly      bool // the caller reads nothing but events
}

// AcceptEventStream says that the call's answer is a stream. A caller who accepts only events (as some official clients of A2A read nothing
// else) is then told of an error by one.
func (c *RPC) AcceptEventStream() {
	accept := c.r.Header.Get("Accept")
	c.eventsOnly = strings.Contains(accept, eventStream) && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*")
}

// ID returns the call's id as the caller wrote it, "" if it has none.
func (c *RPC) ID() string {
	if string(c.id) == "null" {
		return ""
	}
	return string(c.id)
}

// WriteResult answers the call with its result.
func (c *RPC) WriteResult(result any) error {
	return WriteJSON(c.w, http.StatusOK, c.EncodeResult(result))
}

// WriteError answers the call with an error that only its protocol has, under a status of HTTP.
func (c *RPC) WriteError(status, code int, message string, data any) error {
	return WriteJSON(c.w, status, rpcErrorResponse{"2.0", c.id, rpcErrorObject{code, message, data}})
}

// DecodeParams reads the call's params, which must be an object, into v. It lets go of them, since a stream may last longer
// than anyone needs the message that opened it.
func (c *RPC) DecodeParams(v any) error {
	params := c.Params
	if c.Params = nil; len(params) == 0 || params[0] != '{' {
		return agentsvc.NewInvalidError("params", "must be an object")
	}
	return DecodeJSON(params, v, false)
}

// EncodeError returns the body that tells of err in the call's own envelope.
func (c *RPC) EncodeError(err error) any {
	return c.newFaultResponse(NewFault(RequestID(c.r), err))
}

// EncodeResult returns the body that tells of a result in the call's own envelope.
func (c *RPC) EncodeResult(result any) any {
	return rpcResponse{"2.0", c.id, result}
}

// Method carries out one JSON-RPC call. What it returns as an error becomes the answer.
type Method func(w http.ResponseWriter, r *http.Request, c *RPC) error

// NewJSONRPCHandler returns the handler of an endpoint whose methods find tells, nil for one it does not have. Once the envelope
// parses, errors are JSON-RPC's own under HTTP 200, but for those of the door.
func NewJSONRPCHandler(find func(method string) Method) Handler {
	return Endpoint{FindMethod: func(_ *http.Request, name string) (Method, error) { return find(name), nil }}.ServeRPC
}

// Endpoint answers JSON-RPC in a dialect that chooses its methods by more than their names, or tells of errors in its own way.
type Endpoint struct {
	// FindMethod returns the method of a name, nil for one that the endpoint does not have.
	FindMethod func(r *http.Request, method string) (Method, error)
	// EncodeErrorData returns what tells of an error beside its code and message; nil = an object with its details.
	EncodeErrorData func(Fault) any
	// ErrorStatus returns the status of HTTP under which an error is told; nil = 200.
	ErrorStatus func(*http.Request, Fault) int
}

// ServeRPC is the endpoint's handler.
func (e Endpoint) ServeRPC(w http.ResponseWriter, r *http.Request) error {
	c := &RPC{id: json.RawMessage("null"), w: w, r: r, encodeErrorData: e.EncodeErrorData, errorStatus: e.ErrorStatus}
	err := c.readRequest()
	if err == nil {
		var m Method
		switch m, err = e.FindMethod(r, c.Method); {
		case err != nil:
		case m == nil:
			err = &rpcError{rpcMethodNotFound, fmt.Sprintf("there is no method %.64q", c.Method)}
		default:
			err = m(w, r, c)
		}
	}
	return c.respondError(err)
}

// respondError writes err where it is JSON-RPC's to tell; what it returns is the door's.
func (c *RPC) respondError(err error) error {
	if err == nil {
		return nil
	}
	v := classifyError(err)
	rec := recordOf(c.r)
	if v.isHTTPError() || errors.Is(err, errNoAgent) || errors.Is(err, errNoApp) || rec.status != 0 || c.r.Context().Err() != nil {
		return err
	}
	if rec.err, rec.code = err, v.code; rec.request != nil {
		rec.request.server.logError(c.r.Context(), rec, v, err)
	}
	reported := v.toFault(rec.id)
	fault := c.newFaultResponse(reported)
	if c.eventsOnly {
		return writeSingleEvent(c.w, fault)
	}
	status := http.StatusOK
	if c.errorStatus != nil {
		status = c.errorStatus(c.r, reported)
	}
	return WriteJSON(c.w, status, fault)
}

type rpcResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
}

type rpcErrorResponse struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   rpcErrorObject  `json:"error"`
}

type rpcErrorObject struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

func (c *RPC) newFaultResponse(f Fault) rpcErrorResponse {
	if c.encodeErrorData != nil {
		return rpcErrorResponse{"2.0", c.id, rpcErrorObject{f.RPC, f.FullMessage(), c.encodeErrorData(f)}}
	}
	f.Details["detail"] = f.Text
	return rpcErrorResponse{"2.0", c.id, rpcErrorObject{f.RPC, f.Title, f.Details}}
}

// readRequest reads the request and opens it.
func (c *RPC) readRequest() error {
	if err := checkContentType(c.r); err != nil {
		return NewInvalidRequestError(err.Error())
	}
	body, err := ReadBody(c.r)
	if err != nil {
		return err
	}
	return c.decodeEnvelope(body)
}

// decodeEnvelope reads the envelope. An id that it finds stays even if the rest is wrong.
func (c *RPC) decodeEnvelope(body []byte) error {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) > 0 && body[0] == '{':
	case !json.Valid(body):
		return newParseError(body)
	case body[0] == '[':
		return NewInvalidRequestError("batches are not supported, send one call at a time")
	default:
		return NewInvalidRequestError("a call is a JSON object")
	}
	var members struct {
		Version json.RawMessage `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  json.RawMessage `json:"method"`
		Params  AliasedJSON     `json:"params"`
	}
	if json.Unmarshal(body, &members) != nil {
		return newParseError(body)
	}
	if id := members.ID; len(id) > 0 {
		if id[0] == '{' || id[0] == '[' || id[0] == 't' || id[0] == 'f' {
			return NewInvalidRequestError("id must be a string, a number or null")
		}
		c.id = id
	}
	if string(members.Version) != `"2.0"` {
		return NewInvalidRequestError(`jsonrpc must be "2.0"`)
	}
	if json.Unmarshal(members.Method, &c.Method) != nil || c.Method == "" {
		return NewInvalidRequestError("method must be the name of a method")
	}
	c.Params = json.RawMessage(members.Params)
	return nil
}

// AliasedJSON is a value as it stands in a body that its reader keeps: where [json.RawMessage] copies it, Within is a part of the body.
type AliasedJSON []byte

// UnmarshalJSON keeps b, of which [json.Unmarshal] says that it may not be kept, as it may change with the body.
func (w *AliasedJSON) UnmarshalJSON(b []byte) error {
	*w = b
	return nil
}

// newParseError says where body stops being JSON.
func newParseError(body []byte) error {
	var v json.RawMessage
	if err := DecodeJSON(body, &v, false); err != nil {
		return &rpcError{rpcParse, err.Error()}
	}
	return &rpcError{rpcParse, "not JSON"}
}
