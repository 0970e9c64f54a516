package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
)

// newestRevision is the revision that has neither handshake nor session: each request says by itself what it speaks, and the end of its
// connection is the end of what it asked for.
const newestRevision = "2026-07-28"

// supportedVersions are those of the protocol that are spoken, the latest first.
var supportedVersions = []string{newestRevision, "2025-11-25", "2025-06-18"}

// The errors that only this protocol has, and those of JSON-RPC that have a status of their own.
const (
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022

	codeParse          = -32700
	codeMethodNotFound = -32601
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
)

// errorStatus is the one of HTTP for an error: 200, but in the newest revision where a request is wrong.
func errorStatus(r *http.Request, f surface.Fault) int {
	if isNewestRevision(r) {
		switch f.RPC {
		case codeMethodNotFound:
			return http.StatusNotFound
		case codeParse, codeInvalidRequest, codeInvalidParams:
			return http.StatusBadRequest
		}
	}
	return http.StatusOK
}

// isNewestRevision reports whether a request speaks the newest revision.
func isNewestRevision(r *http.Request) bool { return r.Header.Get(versionHeader) == newestRevision }

// refuseVersion refuses a version, and says which there are.
func refuseVersion(version string) surface.Method {
	return func(_ http.ResponseWriter, _ *http.Request, rpc *surface.RPC) error {
		return rpc.WriteError(http.StatusBadRequest, codeUnsupportedVersion, "Unsupported protocol version", refusedVersion{supportedVersions, version[:min(len(version), 40)]})
	}
}

// requireSelfDescription returns m for requests that say by themselves what they speak, in headers as in their params. Notifications need not.
func requireSelfDescription(m surface.Method) surface.Method {
	if m == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
		if rpc.ID() == "" {
			return m(w, r, rpc)
		}
		var p requestParams
		if err := surface.DecodeJSON(rpc.Params, &p, false); err != nil {
			return agentsvc.NewInvalidError("params", "must be an object that holds _meta: %v", err)
		}
		for _, same := range []struct{ header, body string }{{versionHeader, p.Meta.Version}, {methodHeader, rpc.Method}, {nameHeader, p.Name}} {
			if value := r.Header.Get(same.header); value != same.body {
				return rpc.WriteError(http.StatusBadRequest, codeHeaderMismatch, fmt.Sprintf("Header mismatch: %s is %.64q, and the request says %.64q", same.header, value, same.body), headerMismatch{same.header})
			}
		}
		var capabilities map[string]json.RawMessage
		if json.Unmarshal(p.Meta.Capabilities, &capabilities) != nil || capabilities == nil {
			return agentsvc.NewInvalidError("params._meta", "must hold io.modelcontextprotocol/clientCapabilities, an object")
		}
		return m(w, r, rpc)
	}
}

// handleDiscover tells what there is.
func handleDiscover(_ http.ResponseWriter, r *http.Request, rpc *surface.RPC) error {
	card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	return rpc.WriteResult(discoverResult{resultBase: newResultBase(r).withCachePolicy(), SupportedVersions: supportedVersions, Instructions: card.Description})
}

// newResultBase is what results have beside their own members: in the newest revision that they are whole, and whose they are.
func newResultBase(r *http.Request) (c resultBase) {
	if !isNewestRevision(r) {
		return c
	}
	c.ResultType = "complete"
	if card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent")); err == nil {
		c.Meta = &resultMeta{newImplementation(card)}
	}
	return c
}

// withCachePolicy says how long a result may be kept, and for whom: an app changes at any time, and each caller sees of it what it may.
func (c resultBase) withCachePolicy() resultBase {
	if c.ResultType != "" {
		c.TTL, c.Scope = new(int), "private"
	}
	return c
}
