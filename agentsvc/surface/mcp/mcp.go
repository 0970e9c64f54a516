// Package mcp makes each agent a server of the Model Context Protocol over streamable HTTP, with one tool that bears the agent's
// name: a call of the tool is a message to the agent. No process keeps anything between two requests. What a client is given as
// its session is a name that it shows again: together with the id of a request it makes that request recognisable, so that a
// repetition is harmless and the call can be cancelled, through whichever process.
//
// wire.go holds the shapes, call.go answers calls of the tool, tell.go turns words into what a model reads.
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
		Sends: []string{versionHeader, sessionHeader}, Reads: []string{sessionHeader},
	}}
}

// versions are those of the protocol that are spoken, the latest first.
var versions = []string{"2025-11-25", "2025-06-18"}

const (
	versionHeader = "MCP-Protocol-Version"
	sessionHeader = "MCP-Session-Id"
)

// caller answers the methods of one agent's server.
type caller struct {
	blockFor time.Duration
}

func (c caller) serve(w http.ResponseWriter, r *http.Request) error {
	if v := r.Header.Get(versionHeader); v != "" && !slices.Contains(versions, v) {
		return surface.WriteJSON(w, http.StatusBadRequest, newUnspoken(v))
	}
	return surface.JSONRPC(c.method)(w, r)
}

// method finds the method of that name.
func (c caller) method(name string) surface.Method {
	switch name {
	case "initialize":
		return admitted(initialize)
	case "ping":
		return admitted(ping)
	case "tools/list":
		return admitted(list)
	case "tools/call":
		return c.call
	case "notifications/cancelled":
		return cancelled
	}
	if strings.HasPrefix(name, "notifications/") {
		return admitted(heard)
	}
	return nil
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
	if !slices.Contains(versions, p.ProtocolVersion) {
		p.ProtocolVersion = versions[0]
	}
	w.Header().Set(sessionHeader, agentsvc.NewID())
	return rpc.Reply(initializeResult{
		ProtocolVersion: p.ProtocolVersion, ServerInfo: implementation{card.Agent, card.Name, card.Version}, Instructions: card.Description,
	})
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
	return rpc.Reply(toolList{[]tool{{
		Name: card.Agent, Title: card.Name, Description: cmp.Or(strings.TrimSpace(about), "Sends a message to the agent "+card.Name+"."),
		InputSchema: inputSchema, OutputSchema: outputSchema,
	}}})
}
