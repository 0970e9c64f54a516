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

// InvalidRequest returns the error for a call that lacks what its method cannot do without.
func InvalidRequest(detail string) error { return &rpcError{rpcInvalidRequest, detail} }

// RPC is one JSON-RPC call under way.
type RPC struct {
	Method string
	Params json.RawMessage
	id     json.RawMessage
	w      http.ResponseWriter
	r      *http.Request
	data   func(Fault) any
	status func(*http.Request, Fault) int
	events bool // the caller reads nothing but events
}

// Streams says that the call's answer is a stream. A caller who accepts only events (as some official clients of A2A read nothing
// else) is then told of an error by one.
func (c *RPC) Streams() {
	accept := c.r.Header.Get("Accept")
	c.events = strings.Contains(accept, eventStream) && !strings.Contains(accept, "json") && !strings.Contains(accept, "*/*")
}

// ID returns the call's id as the caller wrote it, "" if it has none.
func (c *RPC) ID() string {
	if string(c.id) == "null" {
		return ""
	}
	return string(c.id)
}

// Reply answers the call with its result.
func (c *RPC) Reply(result any) error {
	return WriteJSON(c.w, http.StatusOK, c.Envelope(result))
}

// Refuse answers the call with an error that only its protocol has, under a status of HTTP.
func (c *RPC) Refuse(status, code int, message string, data any) error {
	return WriteJSON(c.w, status, rpcFault{"2.0", c.id, rpcFaultDetail{code, message, data}})
}

// Decode reads the call's params, which must be an object, into v. It lets go of them, since a stream may last longer
// than anyone needs the message that opened it.
func (c *RPC) Decode(v any) error {
	params := c.Params
	if c.Params = nil; len(params) == 0 || params[0] != '{' {
		return agentsvc.Invalid("params", "must be an object")
	}
	return DecodeJSON(params, v, false)
}

// Fault returns the body that tells of err in the call's own envelope.
func (c *RPC) Fault(err error) any {
	return c.fault(FaultOf(RequestID(c.r), err))
}

// Envelope returns the body that tells of a result in the call's own envelope.
func (c *RPC) Envelope(result any) any {
	return rpcResult{"2.0", c.id, result}
}

// Method carries out one JSON-RPC call. What it returns as an error becomes the answer.
type Method func(w http.ResponseWriter, r *http.Request, c *RPC) error

// JSONRPC returns the handler of an endpoint whose methods find tells, nil for one it does not have. Once the envelope
// parses, errors are JSON-RPC's own under HTTP 200, but for those of the door.
func JSONRPC(find func(method string) Method) Handler {
	return Endpoint{Find: func(_ *http.Request, name string) (Method, error) { return find(name), nil }}.Serve
}

// Endpoint answers JSON-RPC in a dialect that chooses its methods by more than their names, or tells of errors in its own way.
type Endpoint struct {
	// Find returns the method of a name, nil for one that the endpoint does not have.
	Find func(r *http.Request, method string) (Method, error)
	// Data returns what tells of an error beside its code and message; nil = an object with its details.
	Data func(Fault) any
	// Status returns the status of HTTP under which an error is told; nil = 200.
	Status func(*http.Request, Fault) int
}

// Serve is the endpoint's handler.
func (e Endpoint) Serve(w http.ResponseWriter, r *http.Request) error {
	c := &RPC{id: json.RawMessage("null"), w: w, r: r, data: e.Data, status: e.Status}
	err := c.receive()
	if err == nil {
		var m Method
		switch m, err = e.Find(r, c.Method); {
		case err != nil:
		case m == nil:
			err = &rpcError{rpcMethodNotFound, fmt.Sprintf("there is no method %.64q", c.Method)}
		default:
			err = m(w, r, c)
		}
	}
	return c.answer(err)
}

// answer writes err where it is JSON-RPC's to tell; what it returns is the door's.
func (c *RPC) answer(err error) error {
	if err == nil {
		return nil
	}
	v := judge(err)
	rec := recordOf(c.r)
	if v.door() || errors.Is(err, errNoAgent) || errors.Is(err, errNoApp) || rec.status != 0 || c.r.Context().Err() != nil {
		return err
	}
	if rec.err, rec.code = err, v.code; rec.visit != nil {
		rec.visit.server.logFault(c.r.Context(), rec, v, err)
	}
	told := v.fault(rec.id)
	fault := c.fault(told)
	if c.events {
		return writeEvent(c.w, fault)
	}
	status := http.StatusOK
	if c.status != nil {
		status = c.status(c.r, told)
	}
	return WriteJSON(c.w, status, fault)
}

type rpcResult struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
}

type rpcFault struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   rpcFaultDetail  `json:"error"`
}

type rpcFaultDetail struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data"`
}

func (c *RPC) fault(f Fault) rpcFault {
	if c.data != nil {
		return rpcFault{"2.0", c.id, rpcFaultDetail{f.RPC, f.Sentence(), c.data(f)}}
	}
	f.Details["detail"] = f.Text
	return rpcFault{"2.0", c.id, rpcFaultDetail{f.RPC, f.Title, f.Details}}
}

// receive reads the request and opens it.
func (c *RPC) receive() error {
	if err := checkContentType(c.r); err != nil {
		return InvalidRequest(err.Error())
	}
	body, err := ReadBody(c.r)
	if err != nil {
		return err
	}
	return c.open(body)
}

// open reads the envelope. An id that it finds stays even if the rest is wrong.
func (c *RPC) open(body []byte) error {
	body = bytes.TrimSpace(body)
	switch {
	case len(body) > 0 && body[0] == '{':
	case !json.Valid(body):
		return parseError(body)
	case body[0] == '[':
		return InvalidRequest("batches are not supported, send one call at a time")
	default:
		return InvalidRequest("a call is a JSON object")
	}
	var members struct {
		Version json.RawMessage `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  json.RawMessage `json:"method"`
		Params  Within          `json:"params"`
	}
	if json.Unmarshal(body, &members) != nil {
		return parseError(body)
	}
	if id := members.ID; len(id) > 0 {
		if id[0] == '{' || id[0] == '[' || id[0] == 't' || id[0] == 'f' {
			return InvalidRequest("id must be a string, a number or null")
		}
		c.id = id
	}
	if string(members.Version) != `"2.0"` {
		return InvalidRequest(`jsonrpc must be "2.0"`)
	}
	if json.Unmarshal(members.Method, &c.Method) != nil || c.Method == "" {
		return InvalidRequest("method must be the name of a method")
	}
	c.Params = json.RawMessage(members.Params)
	return nil
}

// Within is a value as it stands in a body that its reader keeps: where [json.RawMessage] copies it, Within is a part of the body.
type Within []byte

// UnmarshalJSON keeps b, of which [json.Unmarshal] says that it may not be kept, as it may change with the body.
func (w *Within) UnmarshalJSON(b []byte) error {
	*w = b
	return nil
}

// parseError says where body stops being JSON.
func parseError(body []byte) error {
	var v json.RawMessage
	if err := DecodeJSON(body, &v, false); err != nil {
		return &rpcError{rpcParse, err.Error()}
	}
	return &rpcError{rpcParse, "not JSON"}
}
