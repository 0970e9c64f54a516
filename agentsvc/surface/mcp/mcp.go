// Package mcp makes each agent a server of the Model Context Protocol over streamable HTTP, with one tool that bears the agent's
// name: a call of the tool is a message to the agent. No process keeps anything between two requests. What a client is given as
// its session is a name that it shows again: together with the id of a request it makes that request recognisable, so that a
// repetition is harmless and the call can be cancelled, through whichever process.
//
// wire.go holds the shapes, revision.go what the newest revision of the protocol asks for, call.go answers calls of the tool,
// encode.go turns words into what a model reads.
package mcp

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// Options tune the surface. The zero value works.
type Options struct {
	BlockFor time.Duration // how long a call waits whose client reads no events; 5 minutes
}

// Routes returns what the surface answers.
func Routes(o Options) []surface.Route {
	c := handler{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	return []surface.Route{{
		Method: http.MethodPost, Pattern: "/mcp/{agent}", Kind: surface.Tenant, LargeBody: true, NoDeadline: true, Serve: c.handleRequest,
		RequestHeaders: []string{versionHeader, methodHeader, nameHeader, sessionHeader}, ResponseHeaders: []string{sessionHeader},
	}}
}

const (
	versionHeader = "MCP-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	sessionHeader = "MCP-Session-Id"
)

// handler answers the methods of one agent's server.
type handler struct {
	blockFor time.Duration
}

func (c handler) handleRequest(w http.ResponseWriter, r *http.Request) error {
	return surface.Endpoint{FindMethod: c.findMethod, ErrorStatus: errorStatus}.ServeRPC(w, r)
}

// findMethod returns the method of that name in the revision that the request speaks, which before an initialize it does not say.
func (c handler) findMethod(r *http.Request, name string) (surface.Method, error) {
	switch v := r.Header.Get(versionHeader); {
	case v == newestRevision:
		return requireSelfDescription(c.findNewestMethod(name)), nil
	case v == "" || slices.Contains(supportedVersions, v):
		return c.findOlderMethod(name), nil
	default:
		return refuseVersion(v), nil
	}
}

// findNewestMethod finds a method of the newest revision.
func (c handler) findNewestMethod(name string) surface.Method {
	switch name {
	case "server/discover":
		return requireAgentAccess(handleDiscover)
	case "tools/list":
		return requireAgentAccess(handleListTools)
	case "tools/call":
		return c.handleCallTool
	}
	if strings.HasPrefix(name, "notifications/") {
		return requireAgentAccess(handleNotification)
	}
	return nil
}

// findOlderMethod finds a method of the revisions that begin with a handshake.
func (c handler) findOlderMethod(name string) surface.Method {
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
	return c.findNewestMethod(name)
}

// requireAgentAccess returns m for those who may call the agent.
func requireAgentAccess(m surface.Method) surface.Method {
	return func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		if err := surface.RequestOf(r).AuthorizeAgent(r.Context(), authz.AgentsCall, surface.PathParam(r, "agent"), ""); err != nil {
			return err
		}
		return m(w, r, rpc)
	}
}

func handlePing(_ http.ResponseWriter, _ *http.Request, rpc *surface.RPC) error {
	return rpc.WriteResult(struct{}{})
}

// handleNotification takes a notification that changes nothing.
func handleNotification(w http.ResponseWriter, _ *http.Request, _ *surface.RPC) error {
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// handleInitialize agrees on a version and gives the client its session.
func handleInitialize(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	var p initializeParams
	if err := rpc.DecodeParams(&p); err != nil {
		return err
	}
	card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	if !slices.Contains(supportedVersions[1:], p.ProtocolVersion) {
		p.ProtocolVersion = supportedVersions[1]
	}
	w.Header().Set(sessionHeader, agentsvc.NewID())
	return rpc.WriteResult(initializeResult{ProtocolVersion: p.ProtocolVersion, ServerInfo: newImplementation(card), Instructions: card.Description})
}

func handleListTools(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	description := card.Description
	for _, s := range card.Skills {
		if s.Description != card.Description { // else it is what every agent can do that names no skills
			description += "\n- " + s.Name + ": " + s.Description
		}
	}
	return rpc.WriteResult(toolList{newResultBase(r).withCachePolicy(), []tool{{
		Name: card.Agent, Title: card.Name, Description: cmp.Or(strings.TrimSpace(description), "Sends a message to the agent "+card.Name+"."),
		InputSchema: inputSchema, OutputSchema: outputSchema,
	}}})
}
