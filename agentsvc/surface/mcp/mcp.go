// Package mcp makes each agent a server of the Model Context Protocol over streamable HTTP, with one tool that bears the agent's
// name: a call of the tool is a message to the agent. No process keeps anything between two requests. What a client is given as
// its session is a name that it shows again: together with the id of a request it makes that request recognisable, so that a
// repetition is harmless and the call can be cancelled, through whichever process.
//
// wire.go holds the shapes, revision.go what the newest revision of the protocol asks for, call.go answers calls of the tool,
// tell.go turns words into what a model reads.
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
	c := caller{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	return []surface.Route{{
		Method: http.MethodPost, Pattern: "/mcp/{agent}", Kind: surface.Tenant, Messages: true, Waits: true, Serve: c.serve,
		Sends: []string{versionHeader, methodHeader, nameHeader, sessionHeader}, Reads: []string{sessionHeader},
	}}
}

const (
	versionHeader = "MCP-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	sessionHeader = "MCP-Session-Id"
)

// caller answers the methods of one agent's server.
type caller struct {
	blockFor time.Duration
}

func (c caller) serve(w http.ResponseWriter, r *http.Request) error {
	return surface.Endpoint{Find: c.find, Status: status}.Serve(w, r)
}

// find returns the method of that name in the revision that the request speaks, which before an initialize it does not say.
func (c caller) find(r *http.Request, name string) (surface.Method, error) {
	switch v := r.Header.Get(versionHeader); {
	case v == newest:
		return alone(c.method(name)), nil
	case v == "" || slices.Contains(versions, v):
		return c.older(name), nil
	default:
		return unspoken(v), nil
	}
}

// method finds a method of the newest revision.
func (c caller) method(name string) surface.Method {
	switch name {
	case "server/discover":
		return admitted(discover)
	case "tools/list":
		return admitted(list)
	case "tools/call":
		return c.call
	}
	if strings.HasPrefix(name, "notifications/") {
		return admitted(heard)
	}
	return nil
}

// older finds a method of the revisions that begin with a handshake.
func (c caller) older(name string) surface.Method {
	switch name {
	case "initialize":
		return admitted(initialize)
	case "ping":
		return admitted(ping)
	case "notifications/cancelled":
		return cancelled
	case "server/discover":
		return nil
	}
	return c.method(name)
}

// admitted returns m for those who may call the agent.
func admitted(m surface.Method) surface.Method {
	return func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		if err := surface.VisitOf(r).Use(r.Context(), authz.AgentsCall, surface.Param(r, "agent"), ""); err != nil {
			return err
		}
		return m(w, r, rpc)
	}
}

func ping(_ http.ResponseWriter, _ *http.Request, rpc *surface.RPC) error {
	return rpc.Reply(struct{}{})
}

// heard takes a notification that changes nothing.
func heard(w http.ResponseWriter, _ *http.Request, _ *surface.RPC) error {
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// initialize agrees on a version and gives the client its session.
func initialize(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	var p initializeParams
	if err := rpc.Decode(&p); err != nil {
		return err
	}
	card, err := surface.VisitOf(r).Callee(surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	if !slices.Contains(versions[1:], p.ProtocolVersion) {
		p.ProtocolVersion = versions[1]
	}
	w.Header().Set(sessionHeader, agentsvc.NewID())
	return rpc.Reply(initializeResult{ProtocolVersion: p.ProtocolVersion, ServerInfo: newImplementation(card), Instructions: card.Description})
}

func list(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	card, err := surface.VisitOf(r).Callee(surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	about := card.Description
	for _, s := range card.Skills {
		if s.Description != card.Description { // else it is what every agent can do that names no skills
			about += "\n- " + s.Name + ": " + s.Description
		}
	}
	return rpc.Reply(toolList{complete(r).cacheable(), []tool{{
		Name: card.Agent, Title: card.Name, Description: cmp.Or(strings.TrimSpace(about), "Sends a message to the agent "+card.Name+"."),
		InputSchema: inputSchema, OutputSchema: outputSchema,
	}}})
}
