// Package a2a implements the official A2A protocol, versions 1.0 and 0.3, over JSON-RPC and REST (docs/api/a2a.md).
// The gRPC binding is package a2agrpc; it reuses the conversions and error details of this package.
//
// Both versions and both bindings share one implementation. A request passes through these files in this order:
//
//  1. [Routes] (a2a.go) is the table of endpoints. Package surface authenticates the caller and resolves
//     the tenant before it calls a handler of this table.
//  2. rpc.go and rest.go, the bindings, decode a request into params (wire.go). Its structs accept the
//     field names of every version and binding.
//  3. call.go and push.go carry the call out: one function per method, independent of version and
//     binding. They authorize the caller, call the task service and return values of the types of the
//     protocol's Go library (package spec, github.com/a2aproject/a2a-go).
//  4. decode.go and convert.go convert wire structs to library types, library types to domain types
//     (package agentsvc), and back.
//  5. A versionCodec (codec.go) encodes the library types in the form of its version and binding.
//     errors.go does the same for errors, format.go for push notifications.
//
// To add a method, write its function in call.go and list it in versionMethods (rpc.go) and in newRESTRoutes. To
// add a protocol version, write another versionCodec and register it in versionMethods and [Routes].
package a2a

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/agentcard"
)

// Options configure the endpoints. The zero value is valid.
type Options struct {
	// BlockFor is the longest time that a blocking SendMessage waits for its task to end or to need input. After it
	// the answer is the task as it then stands. 0 = 5 minutes.
	BlockFor time.Duration
	// Cards builds the cards of agents.
	Cards agentcard.Builder
}

// Routes returns the endpoints of the protocol: JSON-RPC of both versions at /a2a/{agent}, REST 1.0 below it and
// REST 0.3 below /a2a/{agent}/v0.3/v1. JSON-RPC is also answered at / and /stream, where the query parameter agent
// names the agent, or the app's default agent answers. Package surface mounts every route below /apps/{app} as
// well.
func Routes(o Options) []surface.Route {
	o.BlockFor = cmp.Or(o.BlockFor, 5*time.Minute)
	// NoDeadline is set because the HTTP handler cannot know before it has read the body whether the method waits
	// for a task. bindVersion sets the deadline for those that do not.
	rpc := func(pattern string, isRoot, streams bool, query ...string) surface.Route {
		return surface.Route{
			Method: http.MethodPost, Pattern: pattern, Kind: surface.Tenant, Query: append(query, versionHeader), LargeBody: true, NoDeadline: true, Serve: newEndpoint(o, isRoot, streams),
		}
	}
	of := rpc("/a2a/{agent}", false, false)
	of.Aliases = []string{"/a2a/{agent}/"}
	routes := []surface.Route{
		rpc("/", true, false, agentParam), rpc("/stream", true, true, agentParam), of,
		{
			Method: http.MethodGet, Pattern: "/a2a/{agent}" + agentcard.Path, Aliases: []string{"/a2a/{agent}" + agentcard.OldPath},
			Kind: surface.Tenant, Discovery: true, Serve: newPublicCardHandler(o.Cards),
		},
	}
	for _, r := range newRESTRoutes("/a2a/{agent}", "/extendedAgentCard", binding{&codec10, o, encodeError}) {
		// REST 1.0 allows a tenant segment before the path (A2A 1.0, "tenant" of an interface). A client whose
		// interface names the tenant {app} or {app}/{agent} sends it as one or two path segments. decodeCall reads
		// them back as the parameters tenant and of.
		suffix := strings.TrimPrefix(r.Pattern, "/a2a/{agent}")
		r.Aliases = []string{"/a2a/{agent}/{tenant}" + suffix, "/a2a/{agent}/{tenant}/{of}" + suffix}
		routes = append(routes, r)
	}
	return append(routes, newRESTRoutes("/a2a/{agent}/v0.3/v1", "/card", binding{&codec03REST, o, encodeError03})...)
}

// newRESTRoutes returns the REST routes of one binding below base. The versions have the same paths except for that
// of the extended card, which is cardPath.
func newRESTRoutes(base, cardPath string, b binding) []surface.Route {
	// RespellField runs inside the route, so that the field names of errors are those of the protocol also for
	// errors of the domain packages.
	of := func(method, path string, serve restHandler) surface.Route {
		query := callQuery
		switch method + path {
		case "GET/tasks":
			query = listQuery
		case "GET/tasks/{task}":
			query = getQuery
		}
		return surface.Route{Method: method, Pattern: base + path, Kind: surface.Tenant, Query: query, AnyQuery: !b.codec.refusesUnknown, EncodeError: b.encodeError, Serve: func(w http.ResponseWriter, r *http.Request) error {
			c, err := b.decodeCall(r, query)
			if err == nil {
				err = serve(w, c)
			}
			return RespellField(err)
		}}
	}
	sends, streams := of(http.MethodPost, "/message:send", b.unaryHandler(handleSend)), of(http.MethodPost, "/message:stream", b.streamHandler(handleStream))
	sends.LargeBody, streams.LargeBody = true, true
	follow := of(http.MethodGet, "/tasks/{task}:subscribe", b.streamHandler(handleSubscribe))
	posted := of(http.MethodPost, "/tasks/{task}:subscribe", b.streamHandler(handleSubscribe)) // clients of 1.0 do
	// These four wait for a task, so package surface must not end them at its deadline for short requests.
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

// newPublicCardHandler returns the handler that answers with the card of an agent that the caller may see. The route is
// a Discovery route: no credential is needed, and the visibility of the agent decides.
func newPublicCardHandler(cards agentcard.Builder) surface.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		v := surface.RequestOf(r)
		c, err := v.Card(surface.PathParam(r, "agent"))
		if err != nil {
			return err
		}
		answer, err := cards.Build(v, c)
		if err != nil {
			return err
		}
		return agentcard.WriteCard(w, r, answer)
	}
}
