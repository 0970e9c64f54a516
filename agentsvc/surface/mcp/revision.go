package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// newest is the revision that has neither handshake nor session: each request says by itself what it speaks, and the end of its
// connection is the end of what it asked for.
const newest = "2026-07-28"

// versions are those of the protocol that are spoken, the latest first.
var versions = []string{newest, "2025-11-25", "2025-06-18"}

// The errors that only this protocol has, and those of JSON-RPC that have a status of their own.
const (
	codeMismatch = -32020
	codeUnspoken = -32022

	codeParse     = -32700
	codeNoMethod  = -32601
	codeNoRequest = -32600
	codeParams    = -32602
)

// status is the one of HTTP for an error: 200, but in the newest revision where a request is wrong.
func status(r *http.Request, f surface.Fault) int {
	if modern(r) {
		switch f.RPC {
		case codeNoMethod:
			return http.StatusNotFound
		case codeParse, codeNoRequest, codeParams:
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// modern reports whether a request speaks the newest revision.
func modern(r *http.Request) bool { return r.Header.Get(versionHeader) == newest }

// unspoken refuses a version, and says which there are.
func unspoken(version string) surface.Method {
	return func(_ http.ResponseWriter, _ *http.Request, rpc *surface.RPC) error {
		return rpc.Refuse(http.StatusBadRequest, codeUnspoken, "Unsupported protocol version", refusedVersion{versions, version[:min(len(version), 40)]})
	}
}

// alone returns m for requests that say by themselves what they speak, in headers as in their params. Notifications need not.
func alone(m surface.Method) surface.Method {
	if m == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		if rpc.ID() == "" {
			return m(w, r, rpc)
		}
		var p requestParams
		if err := surface.DecodeJSON(rpc.Params, &p, false); err != nil {
			return agentsvc.Invalid("params", "must be an object that holds _meta: %v", err)
		}
		for _, same := range []struct{ header, body string }{{versionHeader, p.Meta.Version}, {methodHeader, rpc.Method}, {nameHeader, p.Name}} {
			if said := r.Header.Get(same.header); said != same.body {
				return rpc.Refuse(http.StatusBadRequest, codeMismatch, fmt.Sprintf("Header mismatch: %s is %.64q, and the request says %.64q", same.header, said, same.body), mismatch{same.header})
			}
		}
		var capabilities map[string]json.RawMessage
		if json.Unmarshal(p.Meta.Capabilities, &capabilities) != nil || capabilities == nil {
			return agentsvc.Invalid("params._meta", "must hold io.modelcontextprotocol/clientCapabilities, an object")
		}
		return m(w, r, rpc)
	}
}

// discover tells what there is.
func discover(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	card, err := surface.VisitOf(r).Callee(surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	return rpc.Reply(discoverResult{completion: complete(r).cacheable(), SupportedVersions: versions, Instructions: card.Description})
}

// complete is what results have beside their own members: in the newest revision that they are whole, and whose they are.
func complete(r *http.Request) (c completion) {
	if !modern(r) {
		return c
	}
	c.ResultType = "complete"
	if card, err := surface.VisitOf(r).Callee(surface.Param(r, "agent")); err == nil {
		c.Meta = &resultMeta{newImplementation(card)}
	}
	return c
}

// cacheable says how long a result may be kept, and for whom: an app changes at any time, and each caller sees of it what it may.
func (c completion) cacheable() completion {
	if c.ResultType != "" {
		c.TTL, c.Scope = new(int), "private"
	}
	return c
}
