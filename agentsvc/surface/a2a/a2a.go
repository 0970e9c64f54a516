// Package a2a is the official A2A protocol, versions 1.0 and 0.3, over JSON-RPC and REST: one dialect with two vocabularies.
//
// A call takes the same way whatever its version and binding. rpc.go and rest.go, the bindings, read it into the shapes of
// wire.go, which hold what any version sends; decode.go makes of them the types of the protocol's library, and convert.go the words,
// and back. call.go carries it out. A [versionCodec] says what its version calls things; errors.go does for errors.
package a2a

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc/surface"
)

// Options tune the surface. The zero value works.
type Options struct {
	BlockFor time.Duration // how long a blocking call waits for its task; 5 minutes
}

// Routes returns what the surface answers: at /a2a/{agent} JSON-RPC and below it REST, of version 0.3 below /v0.3/v1, and at
// the root JSON-RPC for the agent that the query names.
func Routes(o Options) []surface.Route {
	blockFor := cmp.Or(o.BlockFor, 5*time.Minute)
	rpc := func(pattern string, streams bool) surface.Route {
		return surface.Route{
			Method: http.MethodPost, Pattern: pattern, Kind: surface.Tenant, LargeBody: true, NoDeadline: true, Serve: newEndpoint(blockFor, streams),
		}
	}
	routes := []surface.Route{
		rpc("/", false), rpc("/stream", true), rpc("/a2a/{agent}", false),
		{Method: http.MethodGet, Pattern: "/a2a/{agent}/.well-known/agent-card.json", Kind: surface.Tenant, Discovery: true, Serve: handlePublicCard},
	}
	for _, r := range newRESTRoutes("/a2a/{agent}", "/extendedAgentCard", binding{&codec10, blockFor, encodeError}) {
		// A client whose interface names a tenant, {app} or {app}/{agent}, puts it before the path.
		suffix := strings.TrimPrefix(r.Pattern, "/a2a/{agent}")
		r.Aliases = []string{"/a2a/{agent}/{tenant}" + suffix, "/a2a/{agent}/{tenant}/{of}" + suffix}
		routes = append(routes, r)
	}
	return append(routes, newRESTRoutes("/a2a/{agent}/v0.3/v1", "/card", binding{&codec03REST, blockFor, encodeError03})...)
}

// newRESTRoutes returns what a binding answers below base; the two versions differ in where the extended card is.
func newRESTRoutes(base, cardPath string, b binding) []surface.Route {
	of := func(method, path string, serve surface.Handler) surface.Route {
		return surface.Route{Method: method, Pattern: base + path, Kind: surface.Tenant, EncodeError: b.encodeError, Serve: func(w http.ResponseWriter, r *http.Request) error {
			return RespellField(serve(w, r))
		}}
	}
	sends, streams := of(http.MethodPost, "/message:send", b.unaryHandler(handleSend)), of(http.MethodPost, "/message:stream", b.streamHandler(handleStream))
	sends.LargeBody, streams.LargeBody = true, true
	follow := of(http.MethodGet, "/tasks/{task}:subscribe", b.streamHandler(handleSubscribe))
	posted := of(http.MethodPost, "/tasks/{task}:subscribe", b.streamHandler(handleSubscribe)) // clients of 1.0 do
	for _, r := range []*surface.Route{&sends, &streams, &follow, &posted} {
		r.NoDeadline = true
	}
	cancels := of(http.MethodPost, "/tasks/{task}:cancel", b.unaryHandler(handleCancel))
	cancels.Idempotent = true
	const pushes = "/tasks/{task}/pushNotificationConfigs"
	return []surface.Route{
		sends, streams, follow, posted, cancels,
		of(http.MethodGet, "/tasks", b.unaryHandler(handleList)), of(http.MethodGet, "/tasks/{task}", b.unaryHandler(handleGet)), of(http.MethodGet, cardPath, b.unaryHandler(handleCard)),
		of(http.MethodPost, pushes, b.unaryHandler(handleSetPush)), of(http.MethodGet, pushes, b.unaryHandler(handleListPushes)),
		of(http.MethodGet, pushes+"/{config}", b.unaryHandler(handleGetPush)), of(http.MethodDelete, pushes+"/{config}", b.unaryHandler(handleDeletePush)),
	}
}

// handlePublicCard answers with the card of an agent.
func handlePublicCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	c, err := v.Card(surface.PathParam(r, "agent"))
	if err != nil {
		return err
	}
	answer, err := v.BuildOfficialCard(c)
	if err != nil {
		return err
	}
	return surface.WriteTagged(w, r, answer)
}
