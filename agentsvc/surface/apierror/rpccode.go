package apierror

// The error codes of JSON-RPC 2.0 (section 5.1 of its specification), and below them those that the A2A specification
// adds.
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

// rpcMessages are the standard messages of the codes. What was wrong in a request is in the data of its error.
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
