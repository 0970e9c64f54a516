package surface

import (
	"net/http"
	"strings"
)

// Fault is an error as an [ErrorEncoder] or a [StreamEncoder] gets it, to encode it in its protocol's form.
type Fault struct {
	Code Code
	// Status is the HTTP status.
	Status int
	// RPC is the JSON-RPC code; A2A has codes of its own among them. Title is the standard message of that code.
	RPC   int
	Title string
	// Text says what was wrong.
	Text string
	// Field is the path of the request's field that was wrong, "" = unknown.
	Field     string
	RequestID string
	// Details contains request_id, field and whatever else applies. Each Fault has a map of its own.
	Details map[string]any
}

// NewFault returns the fault for err in a request with that id.
func NewFault(requestID string, err error) Fault { return classifyError(err).toFault(requestID) }

func (v errorResponse) toFault(requestID string) Fault {
	return Fault{v.code, v.status, v.rpc, rpcMessages[v.rpc], v.text, v.field, requestID, v.buildDetails(requestID)}
}

// FullMessage returns the title and the text, for protocols that have one message. It leaves out the title where the
// text begins with it or the code is too general to add anything, and the text where the title ends with it.
func (f Fault) FullMessage() string {
	title, text := strings.ToLower(f.Title), strings.ToLower(f.Text)
	switch {
	case title == "", f.RPC == rpcInternal, strings.HasPrefix(text, title):
		return f.Text
	// responseErrors have rpcInvalidRequest and unknown paths rpcMethodNotFound for want of a better code.
	case f.Code != InvalidArgument && (f.RPC == rpcInvalidRequest || f.RPC == rpcMethodNotFound):
		return f.Text
	case strings.HasSuffix(title, text):
		return f.Title
	}
	return f.Title + ": " + f.Text
}

// ErrorEncoder encodes a fault in a protocol's form. It returns the status, usually the fault's own, and the body,
// which is encoded as JSON.
type ErrorEncoder func(Fault) (status int, body any)

// writeError writes v as the response, as an [ErrorRecord] if encode is nil.
func (encode ErrorEncoder) writeError(w http.ResponseWriter, requestID string, v errorResponse) {
	v.writeHeaders(w.Header())
	if encode == nil {
		_ = WriteJSON(w, v.status, errorBody{ErrorRecord{v.code, v.text, v.buildDetails(requestID)}})
		return
	}
	status, body := encode(v.toFault(requestID))
	_ = WriteJSON(w, status, body)
}
