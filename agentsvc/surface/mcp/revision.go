package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/jsonrpc"
)

// newestRevision is the protocol revision without handshake and session: each request states its version and the
// client's capabilities, in headers and in params._meta, and the end of its connection cancels it.
const newestRevision = "2026-07-28"

// supportedVersions are the supported revisions, the latest first. handleInitialize relies on the newest being
// element 0.
var supportedVersions = []string{newestRevision, "2025-11-25", "2025-06-18"}

// Error codes of this protocol, and those of JSON-RPC that have an HTTP status of their own in the newest revision.
const (
	codeHeaderMismatch     = -32020
	codeUnsupportedVersion = -32022

	codeParse          = -32700
	codeMethodNotFound = -32601
	codeInvalidRequest = -32600
	codeInvalidParams  = -32602
)

// errorStatus returns the HTTP status of a JSON-RPC error: 200 in older revisions; in the newest 404 for an unknown
// method and 400 for a wrong request.
func errorStatus(r *http.Request, f apierror.Fault) int {
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

// isNewestRevision reports whether a request has the newest revision in its version header.
func isNewestRevision(r *http.Request) bool { return r.Header.Get(versionHeader) == newestRevision }

// refuseVersion returns a method that answers with the supported versions. The requested one is cut to 40 bytes,
// since the client chose it.
func refuseVersion(version string) jsonrpc.Method {
	return func(_ http.ResponseWriter, _ *http.Request, rpc *jsonrpc.Call) error {
		return rpc.WriteError(http.StatusBadRequest, codeUnsupportedVersion, "Unsupported protocol version", refusedVersion{supportedVersions, version[:min(len(version), 40)]})
	}
}

// requireSelfDescription returns m with the checks of the newest revision: version, method and tool name must be
// the same in the headers and in the body, and the client's capabilities must be present. Proxies may route by the
// headers, so a difference is an error and not resolved. Notifications (without an ID) are exempt.
func requireSelfDescription(m jsonrpc.Method) jsonrpc.Method {
	if m == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
		if rpc.ID() == "" {
			return m(w, r, rpc)
		}
		var p requestParams
		if err := decode.JSON(rpc.Params, &p, false); err != nil {
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

// handleDiscover answers server/discover, which takes the place of initialize in the newest revision.
func handleDiscover(_ http.ResponseWriter, r *http.Request, rpc *jsonrpc.Call) error {
	card, err := surface.RequestOf(r).FindAgent(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	return rpc.WriteResult(discoverResult{resultBase: newResultBase(r).withCachePolicy(), SupportedVersions: supportedVersions, Instructions: card.Description})
}

// newResultBase returns the members that the newest revision adds to every result: that it is complete, and the
// server's name. For older revisions it is zero and encodes to nothing.
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

// withCachePolicy adds a cache policy of 0 ms, private: the app's configuration may change at any time, and the
// answer depends on the caller.
func (b resultBase) withCachePolicy() resultBase {
	if b.ResultType != "" {
		b.TTL, b.Scope = new(int), "private"
	}
	return b
}
