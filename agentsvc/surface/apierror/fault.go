package apierror

import "strings"

// Fault is an error as an [Encoder] or a stream.Encoder gets it, to encode it in its protocol's form.
type Fault struct {
	mapping
	// Title is the standard message of the JSON-RPC code.
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
func NewFault(requestID string, err error) Fault { return Classify(err).ToFault(requestID) }

// ToFault returns the fault for v in a request with that id.
func (r Response) ToFault(requestID string) Fault {
	return Fault{r.mapping, rpcMessages[r.RPC], r.Text, r.field, requestID, r.buildDetails(requestID)}
}

// FullMessage returns the title and the text, for protocols that have one message. It leaves out the title where the
// text begins with it or the code is too general to add anything, and the text where the title ends with it.
func (f Fault) FullMessage() string {
	title, text := strings.ToLower(f.Title), strings.ToLower(f.Text)
	switch {
	case title == "", f.RPC == rpcInternal, strings.HasPrefix(text, title):
		return f.Text
	// Errors that are no errors of a message have rpcInvalidRequest or rpcMethodNotFound for want of a better code.
	case f.Code != InvalidArgument && (f.RPC == rpcInvalidRequest || f.RPC == rpcMethodNotFound):
		return f.Text
	case strings.HasSuffix(title, text):
		return f.Title
	}
	return f.Title + ": " + f.Text
}

// Encoder encodes a fault in a protocol's form. It returns the status, usually the fault's own, and the body,
// which is encoded as JSON.
type Encoder func(Fault) (status int, body any)

// Encode returns the status and the body of a response with v, an [Record] if encode is nil.
func (encode Encoder) Encode(requestID string, v Response) (status int, body any) {
	if encode == nil {
		return v.Status, errorBody{Record{v.Code, v.Text, v.buildDetails(requestID)}}
	}
	return encode(v.ToFault(requestID))
}
