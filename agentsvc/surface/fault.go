package surface

import (
	"net/http"
	"strings"
)

// Fault is what a caller is told of an error, for dialects that have a form of their own for it.
type Fault struct {
	Code      Code
	Status    int    // of HTTP
	RPC       int    // the number that JSON-RPC and A2A have for it
	Title     string // what that number stands for
	Text      string // what was wrong
	Field     string // of the request that it is about, "" = nobody knows
	RequestID string
	Details   map[string]any // what else there is to tell, the request's id and the field among it
}

// NewFault returns what a caller is told of err, which happened under a request's id.
func NewFault(requestID string, err error) Fault { return classifyError(err).toFault(requestID) }

func (v errorResponse) toFault(requestID string) Fault {
	return Fault{v.code, v.status, v.rpc, rpcMessages[v.rpc], v.text, v.field, requestID, v.buildDetails(requestID)}
}

// FullMessage is what was wrong, behind the title where that says more.
func (f Fault) FullMessage() string {
	title, text := strings.ToLower(f.Title), strings.ToLower(f.Text)
	switch {
	case title == "", f.RPC == rpcInternal, strings.HasPrefix(text, title):
		return f.Text
	case f.Code != InvalidArgument && (f.RPC == rpcInvalidRequest || f.RPC == rpcMethodNotFound): // that is not what is wrong with it
		return f.Text
	case strings.HasSuffix(title, text):
		return f.Title
	}
	return f.Title + ": " + f.Text
}

// ErrorEncoder is how a route's errors are told: the body for a fault, and the status if it is not the fault's own.
type ErrorEncoder func(Fault) (status int, body any)

// writeError answers with what v says.
func (encode ErrorEncoder) writeError(w http.ResponseWriter, requestID string, v errorResponse) {
	v.writeHeaders(w.Header())
	if encode == nil {
		_ = WriteJSON(w, v.status, errorBody{ErrorRecord{v.code, v.text, v.buildDetails(requestID)}})
		return
	}
	status, body := encode(v.toFault(requestID))
	_ = WriteJSON(w, status, body)
}
