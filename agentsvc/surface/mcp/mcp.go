// Package mcp makes each agent a server of the Model Context Protocol over streamable HTTP (docs/api/mcp.md), with
// one tool that has the agent's name: a call of the tool is a message to the agent.
//
// POST /mcp/{agent} is the only endpoint. A request is a JSON-RPC call: findMethod selects the method by the
// protocol revision and the name; tools/call (call.go) decodes the message, authorizes the caller, submits a task
// and answers with its result (encode.go), as JSON or as a stream with progress. revision.go has what differs in
// the newest revision, wire.go the request and response types and the JSON schemas of the tool.
//
// No state is kept between requests, so any process can answer any of them. The session ID that initialize returns
// is only a name: together with a request's ID it forms the idempotency key of a call. A repeated request therefore
// finds its task, and notifications/cancelled can name it.
package mcp

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/jsonrpc"
	"stoa/authz"
)

// Options configure the endpoint. The zero value is valid.
type Options struct {
	// BlockFor is how long a call waits for its task if the client accepts no event stream; after it the result
	// says that the agent is still working. 0 = 5 minutes.
	BlockFor time.Duration
}

// Routes returns the endpoint. There is no GET and no DELETE: the server sends nothing outside of responses, and
// there is no session to end; package surface answers 405.
func Routes(o Options) []surface.Route {
	c := handler{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	return []surface.Route{{
		Method: http.MethodPost, Pattern: "/mcp/{agent}", Kind: surface.Tenant, LargeBody: true, NoDeadline: true, AnyQuery: true, Serve: c.handleRequest,
		RequestHeaders: []string{versionHeader, methodHeader, nameHeader, sessionHeader}, ResponseHeaders: []string{sessionHeader},
	}}
}

// Headers of the protocol. The newest revision requires the first three, older ones use the version and the
// session.
const (
	versionHeader = "MCP-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	sessionHeader = "MCP-Session-Id"
)

// handler holds the options of the endpoint.
type handler struct {
	blockFor time.Duration // see Options.BlockFor
}

// handleRequest answers one JSON-RPC request or notification.
func (h handler) handleRequest(w http.ResponseWriter, r *http.Request) error {
	return jsonrpc.Endpoint{
		FindMethod: h.findMethod, ErrorStatus: errorStatus, NotificationStatus: http.StatusAccepted,
		NeedsID: func(method string) bool { return !isNotification(method) },
	}.Serve(w, r)
}

// findMethod returns the method of that name in the revision of the request's header. A request without the header
// is one of an older revision: initialize comes before a version is agreed on.
func (h handler) findMethod(r *http.Request, name string) (jsonrpc.Method, error) {
	switch v := r.Header.Get(versionHeader); {
	case v == newestRevision:
		return requireSelfDescription(h.findNewestMethod(name)), nil
	case v == "" || slices.Contains(supportedVersions, v):
		return h.findOlderMethod(name), nil
	default:
		return refuseVersion(v), nil
	}
}

// findNewestMethod returns a method of the newest revision, nil for an unknown name.
func (h handler) findNewestMethod(name string) jsonrpc.Method {
	switch name {
	case "server/discover":
		return requireAgentAccess(handleDiscover)
	case "tools/list":
		return requireAgentAccess(handleListTools)
	case "tools/call":
		return h.handleCallTool
	}
	if isNotification(name) {
		return requireAgentAccess(handleNotification)
	}
	return nil
}

// isNotification reports whether a method has no response. All others need an id (MCP specification, Requests).
func isNotification(method string) bool { return strings.HasPrefix(method, "notifications/") }

// findOlderMethod returns a method of the revisions that begin with a handshake (initialize), nil for an unknown
// name.
func (h handler) findOlderMethod(name string) jsonrpc.Method {
	switch name {
	case "initialize":
		return requireAgentAccess(handleInitialize)
	case "ping":
		return requireAgentAccess(handlePing)
	case "notifications/cancelled":
		return handleCancelled
	case "server/discover":
		return nil
	}
	return h.findNewestMethod(name)
}

// requireAgentAccess returns m with a check that the caller may call the agent. Every method needs it, also
// discovery: the description of an agent is not public here. handleCallTool and handleCancelled authorize
// themselves.
func requireAgentAccess(m jsonrpc.Method) jsonrpc.Method {
	return func(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
		if err := surface.RequestOf(r).AuthorizeAgent(r.Context(), authz.AgentsCall, surface.PathParam(r, "agent")); err != nil {
			return err
		}
		return m(w, r, rpc)
	}
}

// handlePing answers ping with an empty result.
func handlePing(_ http.ResponseWriter, _ *http.Request, rpc *jsonrpc.Call) error {
	return rpc.WriteResult(struct{}{})
}

// handleNotification accepts a notification that has no effect here, such as notifications/initialized.
func handleNotification(_ http.ResponseWriter, _ *http.Request, rpc *jsonrpc.Call) error {
	return rpc.WriteResult(nil)
}

// handleInitialize answers the handshake of older revisions: with the client's version if it is supported, else
// with the latest one that has a handshake. It returns a new session ID, which is stored nowhere.
func handleInitialize(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	var p initializeParams
	if err := rpc.DecodeParams(&p); err != nil {
		return err
	}
	card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	// Element 0 is the newest revision, which has no handshake.
	if !slices.Contains(supportedVersions[1:], p.ProtocolVersion) {
		p.ProtocolVersion = supportedVersions[1]
	}
	w.Header().Set(sessionHeader, agentsvc.NewID())
	return rpc.WriteResult(initializeResult{ProtocolVersion: p.ProtocolVersion, ServerInfo: newImplementation(card), Instructions: card.Description})
}

// handleListTools answers with the agent's one tool. Its description, which models read to choose a tool, is that
// of the agent and its skills.
func handleListTools(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	description := card.Description
	for _, s := range card.Skills {
		if s.Description != card.Description { // an agent without configured skills has one made from its description
			description += "\n- " + s.Name + ": " + s.Description
		}
	}
	return rpc.WriteResult(toolList{newResultBase(r).withCachePolicy(), []tool{{
		Name: card.Agent, Title: card.Name, Description: cmp.Or(strings.TrimSpace(description), "Sends a message to the agent "+card.Name+"."),
		InputSchema: inputSchema, OutputSchema: outputSchema,
	}}})
}
