package apierror

// The error codes of JSON-RPC 2.0 (section 5.1 of its specification), and below them those that the A2A specification
// adds.
const (
	RPCParse          = -32700
	RPCInvalidRequest = -32600
	RPCMethodNotFound = -32601
	RPCInvalidParams  = -32602
	RPCInternal       = -32603

	RPCTaskNotFound  = -32001
	RPCNotCancelable = -32002
	RPCNoPush        = -32003
	RPCUnsupported   = -32004
	RPCContentType   = -32005
	RPCVersion       = -32009
)

// rpcMessages are the standard messages of the codes. What was wrong in a request is in the data of its error.
var rpcMessages = map[int]string{
	RPCParse:          "Parse error",
	RPCInvalidRequest: "Invalid request",
	RPCMethodNotFound: "Method not found",
	RPCInvalidParams:  "Invalid params",
	RPCInternal:       "Internal error",
	RPCTaskNotFound:   "Task not found",
	RPCNotCancelable:  "Task cannot be cancelled",
	RPCNoPush:         "Push notifications are not supported",
	RPCUnsupported:    "This operation is not supported",
	RPCContentType:    "Incompatible content types",
	RPCVersion:        "This version of the protocol is not supported",
}

// rpcError is an error that is created with its JSON-RPC code. Its detail is the text for the caller.
type rpcError struct {
	code   int
	detail string
}

// Error returns the detail.
func (e *rpcError) Error() string { return e.detail }

// NewRPCError returns an error with a JSON-RPC code; detail is its text for the caller.
func NewRPCError(code int, detail string) error { return &rpcError{code, detail} }

// NewInvalidRequestError returns an error with the code "Invalid request" for a request that is not what its protocol
// demands.
func NewInvalidRequestError(detail string) error { return &rpcError{RPCInvalidRequest, detail} }
