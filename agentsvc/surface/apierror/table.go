package apierror

import "stoa/agentsvc"

// Code is the name of an error in responses, such as NOT_FOUND. It is coarser than an [agentsvc.Code].
type Code string

// The codes of responses.
const (
	InvalidArgument    Code = "INVALID_ARGUMENT"
	Unauthenticated    Code = "UNAUTHENTICATED"
	PermissionDenied   Code = "PERMISSION_DENIED"
	NotFound           Code = "NOT_FOUND"
	AlreadyExists      Code = "ALREADY_EXISTS"
	Aborted            Code = "ABORTED"
	FailedPrecondition Code = "FAILED_PRECONDITION"
	ResourceExhausted  Code = "RESOURCE_EXHAUSTED"
	Internal           Code = "INTERNAL"
	Unavailable        Code = "UNAVAILABLE"
)

// The codes of errors that arise in the protocols, besides those of the domain.
const (
	codeInternal         agentsvc.Code = "internal"
	codeNotCancelable    agentsvc.Code = "not cancelable"
	codeNoPush           agentsvc.Code = "no push notifications"
	CodeContentType      agentsvc.Code = "content type"       // the agent does not read this type of content
	CodeVersion          agentsvc.Code = "version"            // the server does not speak this version of the protocol
	CodeUnsupported      agentsvc.Code = "unsupported"        // the server does not implement the operation
	CodeMalformed        agentsvc.Code = "malformed"          // the request is not what its protocol demands
	CodeNotJSON          agentsvc.Code = "not JSON"           // the body cannot be parsed
	CodeNoMethod         agentsvc.Code = "no method"          // JSON-RPC has no such method
	CodeNoEndpoint       agentsvc.Code = "no endpoint"        // the app, agent, webhook or verb of the path does not exist
	CodeForeignPage      agentsvc.Code = "foreign page"       // web pages of this origin may not call
	CodeBodyTooLarge     agentsvc.Code = "body too large"     // no request may be as large
	CodeBodiesLimited    agentsvc.Code = "bodies limited"     // there are too many requests, or they are too slow, at present
	codeHeadersTooLarge  agentsvc.Code = "headers too large"  // no request may have headers as large
	codeNoPath           agentsvc.Code = "no path"            // no route has the path
	codeMethodNotAllowed agentsvc.Code = "method not allowed" // the path has routes of other HTTP methods
)

// mapping is what the protocols make of a code.
type mapping struct {
	Code Code
	// Status is the HTTP status.
	Status int
	// RPC is the JSON-RPC code; A2A has codes of its own among them. See rpcMessages.
	RPC int
	// Reason and GRPC are the reason in google.rpc.ErrorInfo and the name of the status, over REST and gRPC (A2A 1.0, 5.4).
	// A code of A2A has the reason of A2A. Errors that arise before the protocol (authentication, authorization, limits,
	// unavailability) have those of their Code.
	Reason, GRPC string
	// REST03 is the code of version 0.3 over REST: RPC, except for errors that arise before the protocol. -31401 and
	// -31403 are the codes of the protocol's Go library for unauthenticated and unauthorized; with the code of internal
	// errors the clients of 0.3 would report a limit or a wrong token as a fault of the server.
	REST03 int
	// OpenAI is OpenAI's error type. Client libraries choose their exception by it and the status.
	OpenAI string
	// Scheme is the scheme for WWW-Authenticate, "" = the error is not about authentication.
	Scheme string
}

// mappings maps each code, for all protocols.
var mappings = map[agentsvc.Code]mapping{
	agentsvc.CodeInvalid:         {InvalidArgument, 400, rpcInvalidParams, "INVALID_PARAMS", "INVALID_ARGUMENT", rpcInvalidParams, "invalid_request_error", ""},
	agentsvc.CodeReused:          {InvalidArgument, 422, rpcInvalidParams, "INVALID_PARAMS", "INVALID_ARGUMENT", rpcInvalidParams, "invalid_request_error", ""},
	CodeContentType:              {InvalidArgument, 400, rpcContentType, "CONTENT_TYPE_NOT_SUPPORTED", "INVALID_ARGUMENT", rpcContentType, "invalid_request_error", ""},
	CodeMalformed:                {InvalidArgument, 400, rpcInvalidRequest, "INVALID_REQUEST", "INVALID_ARGUMENT", rpcInvalidRequest, "invalid_request_error", ""},
	CodeNotJSON:                  {InvalidArgument, 400, rpcParse, "PARSE_ERROR", "INVALID_ARGUMENT", rpcParse, "invalid_request_error", ""},
	codeMethodNotAllowed:         {InvalidArgument, 405, rpcInvalidRequest, "INVALID_REQUEST", "INVALID_ARGUMENT", rpcInvalidRequest, "invalid_request_error", ""},
	CodeNoMethod:                 {InvalidArgument, 400, rpcMethodNotFound, "METHOD_NOT_FOUND", "UNIMPLEMENTED", rpcMethodNotFound, "invalid_request_error", ""},
	codeNoPush:                   {InvalidArgument, 400, rpcNoPush, "PUSH_NOTIFICATION_NOT_SUPPORTED", "FAILED_PRECONDITION", rpcNoPush, "invalid_request_error", ""},
	CodeVersion:                  {InvalidArgument, 400, rpcVersion, "VERSION_NOT_SUPPORTED", "FAILED_PRECONDITION", rpcVersion, "invalid_request_error", ""},
	CodeUnsupported:              {InvalidArgument, 400, rpcUnsupported, "UNSUPPORTED_OPERATION", "FAILED_PRECONDITION", rpcUnsupported, "invalid_request_error", ""},
	agentsvc.CodeUnauthenticated: {Unauthenticated, 401, rpcInternal, "UNAUTHENTICATED", "UNAUTHENTICATED", -31401, "authentication_error", "Bearer"},
	agentsvc.CodeUnsigned:        {Unauthenticated, 401, rpcInternal, "UNAUTHENTICATED", "UNAUTHENTICATED", -31401, "authentication_error", "Signature"},
	agentsvc.CodeDenied:          {PermissionDenied, 403, rpcInternal, "UNAUTHORIZED", "PERMISSION_DENIED", -31403, "permission_error", ""},
	agentsvc.CodeSuspended:       {PermissionDenied, 403, rpcUnsupported, "UNAUTHORIZED", "PERMISSION_DENIED", rpcUnsupported, "permission_error", ""},
	CodeForeignPage:              {PermissionDenied, 403, rpcInvalidRequest, "UNAUTHORIZED", "PERMISSION_DENIED", rpcInvalidRequest, "permission_error", ""},
	agentsvc.CodeNotFound:        {NotFound, 404, rpcTaskNotFound, "TASK_NOT_FOUND", "NOT_FOUND", rpcTaskNotFound, "invalid_request_error", ""},
	CodeNoEndpoint:               {NotFound, 404, rpcInvalidRequest, "NOT_FOUND", "NOT_FOUND", rpcInvalidRequest, "invalid_request_error", ""},
	codeNoPath:                   {NotFound, 404, rpcMethodNotFound, "NOT_FOUND", "NOT_FOUND", rpcMethodNotFound, "invalid_request_error", ""},
	agentsvc.CodeExists:          {AlreadyExists, 409, rpcInternal, "ALREADY_EXISTS", "ALREADY_EXISTS", rpcInternal, "invalid_request_error", ""},
	agentsvc.CodeState:           {Aborted, 409, rpcUnsupported, "UNSUPPORTED_OPERATION", "FAILED_PRECONDITION", rpcUnsupported, "invalid_request_error", ""},
	codeNotCancelable:            {Aborted, 409, rpcNotCancelable, "TASK_NOT_CANCELABLE", "FAILED_PRECONDITION", rpcNotCancelable, "invalid_request_error", ""},
	agentsvc.CodeConflict:        {Aborted, 409, rpcInternal, "ABORTED", "ABORTED", rpcInternal, "invalid_request_error", ""},
	agentsvc.CodePrecondition:    {FailedPrecondition, 412, rpcInternal, "FAILED_PRECONDITION", "FAILED_PRECONDITION", rpcInternal, "invalid_request_error", ""},
	agentsvc.CodeExhausted:       {ResourceExhausted, 429, rpcInternal, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", -32000, "rate_limit_error", ""},
	agentsvc.CodeBusy:            {ResourceExhausted, 429, rpcInternal, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", -32000, "rate_limit_error", ""},
	CodeBodiesLimited:            {ResourceExhausted, 429, rpcInvalidRequest, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", rpcInvalidRequest, "rate_limit_error", ""},
	agentsvc.CodeTooLarge:        {ResourceExhausted, 413, rpcInternal, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", -32000, "rate_limit_error", ""},
	CodeBodyTooLarge:             {ResourceExhausted, 413, rpcInvalidRequest, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", rpcInvalidRequest, "rate_limit_error", ""},
	codeHeadersTooLarge:          {ResourceExhausted, 431, rpcInvalidRequest, "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", rpcInvalidRequest, "rate_limit_error", ""},
	agentsvc.CodeUnavailable:     {Unavailable, 503, rpcInternal, "UNAVAILABLE", "UNAVAILABLE", -32000, "server_error", ""},
	codeInternal:                 {Internal, 500, rpcInternal, "INTERNAL_ERROR", "INTERNAL", rpcInternal, "server_error", ""},
}
