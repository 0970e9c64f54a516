// Package a2a is the official A2A protocol, versions 1.0 and 0.3, over JSON-RPC and REST: one dialect with two vocabularies.
//
// A call takes the same way whatever its version and binding. rpc.go and rest.go, the bindings, read it into the shapes of
// wire.go, which hold what any version sends; read.go makes of them the types of the protocol's library, and convert.go the words,
// and back. call.go carries it out. A [vocabulary] says what its version calls things; errors.go does for errors.
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
			Method: http.MethodPost, Pattern: pattern, Kind: surface.Tenant, Messages: true, Waits: true, Serve: endpoint(blockFor, streams),
		}
	}
	routes := []surface.Route{
		rpc("/", false), rpc("/stream", true), rpc("/a2a/{agent}", false),
		{Method: http.MethodGet, Pattern: "/a2a/{agent}/.well-known/agent-card.json", Kind: surface.Tenant, Discovery: true, Serve: publicCard},
	}
	for _, r := range restRoutes("/a2a/{agent}", "/extendedAgentCard", binding{&v10, blockFor, tell}) {
		// A client whose interface names a tenant, {app} or {app}/{agent}, puts it before the path.
		rest := strings.TrimPrefix(r.Pattern, "/a2a/{agent}")
		r.Also = []string{"/a2a/{agent}/{tenant}" + rest, "/a2a/{agent}/{tenant}/{of}" + rest}
		routes = append(routes, r)
	}
	return append(routes, restRoutes("/a2a/{agent}/v0.3/v1", "/card", binding{&v03REST, blockFor, tell03})...)
}

// restRoutes returns what a binding answers below base; the two versions differ in where the extended card is.
func restRoutes(base, cardPath string, b binding) []surface.Route {
	of := func(method, path string, serve surface.Handler) surface.Route {
		return surface.Route{Method: method, Pattern: base + path, Kind: surface.Tenant, Tell: b.tell, Serve: func(w http.ResponseWriter, r *http.Request) error {
			return Spelled(serve(w, r))
		}}
	}
	sends, streams := of(http.MethodPost, "/message:send", b.answer(send)), of(http.MethodPost, "/message:stream", b.open(stream))
	sends.Messages, streams.Messages = true, true
	follow := of(http.MethodGet, "/tasks/{task}:subscribe", b.open(subscribe))
	posted := of(http.MethodPost, "/tasks/{task}:subscribe", b.open(subscribe)) // clients of 1.0 do
	for _, r := range []*surface.Route{&sends, &streams, &follow, &posted} {
		r.Waits = true
	}
	cancels := of(http.MethodPost, "/tasks/{task}:cancel", b.answer(cancel))
	cancels.Once = true
	const pushes = "/tasks/{task}/pushNotificationConfigs"
	return []surface.Route{
		sends, streams, follow, posted, cancels,
		of(http.MethodGet, "/tasks", b.answer(list)), of(http.MethodGet, "/tasks/{task}", b.answer(get)), of(http.MethodGet, cardPath, b.answer(card)),
		of(http.MethodPost, pushes, b.answer(setPush)), of(http.MethodGet, pushes, b.answer(listPushes)),
		of(http.MethodGet, pushes+"/{config}", b.answer(getPush)), of(http.MethodDelete, pushes+"/{config}", b.answer(dropPush)),
	}
}

// publicCard answers with the card of an agent.
func publicCard(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	c, err := v.Card(surface.Param(r, "agent"))
	if err != nil {
		return err
	}
	answer, err := v.Official(c)
	if err != nil {
		return err
	}
	return surface.WriteTagged(w, r, answer)
}
