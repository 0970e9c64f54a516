// Package v1 implements the versioned REST surface (docs/api/v1.md): paths below /v1, JSON in camelCase,
// enumerations under the names of Protocol Buffers, server-sent events, and a WebSocket for each agent.
//
// [Routes] is the table of endpoints. Package surface authenticates the caller, resolves the tenant and applies the
// limits on bodies before it calls a handler of this table. A handler decodes (wire.go, convert.go), authorizes,
// calls the task service through [surface.Request] and encodes (encode.go). It returns errors; package surface
// writes them. message.go sends messages, task.go reads and changes tasks, card.go describes agents, socket.go is
// the WebSocket.
//
// Streams have two formats, message and response, see negotiateFormat. The WebSocket uses the second.
package v1

import (
	"cmp"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
)

// Options configure the endpoints. The zero value is valid.
type Options struct {
	// BlockFor is the longest time that a blocking call waits for its task. After it the answer is the task as it
	// then stands. 0 = 5 minutes.
	BlockFor time.Duration
}

// Routes returns the endpoints. Package surface mounts each of them below /apps/{app} as well.
func Routes(o Options) []surface.Route {
	c := handler{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	of := func(method, path string, serve surface.Handler) surface.Route {
		return surface.Route{Method: method, Pattern: "/v1/agents" + path, Kind: surface.Tenant, Serve: serve}
	}
	list, card := of(http.MethodGet, "", handleListCards), of(http.MethodGet, "/{agent}/.well-known/agent-card.json", handleCard)
	// Discovery routes need no credential; the visibility of an agent decides what is shown.
	list.Discovery, card.Discovery = true, true
	send, stream := of(http.MethodPost, "/{agent}/message:send", c.handleSend), of(http.MethodPost, "/{agent}/message:stream", handleStream)
	// The same call for clients that name the agent in a header instead of the path.
	named := surface.Route{Method: http.MethodPost, Pattern: "/v1/message:send", Kind: surface.Tenant, Serve: c.handleSend}
	// A blocking call and a stream last as long as their task, so the deadline of short requests must not end them.
	// LargeBody allows the size of messages with files.
	for _, r := range []*surface.Route{&send, &stream, &named} {
		r.LargeBody, r.NoDeadline = true, true
	}
	cancel := of(http.MethodPost, "/{agent}/tasks/{task}:cancel", handleCancelTask)
	// The message routes are not marked idempotent: the task service deduplicates messages by Idempotency-Key
	// itself.
	cancel.Idempotent = true
	subscribe, socket := of(http.MethodGet, "/{agent}/tasks/{task}:subscribe", handleSubscribe), of(http.MethodGet, "/{agent}/stream", handleSocket)
	subscribe.NoDeadline, socket.NoDeadline = true, true
	tasks, task := of(http.MethodGet, "/{agent}/tasks", handleListTasks), of(http.MethodGet, "/{agent}/tasks/{task}", handleGetTask)
	stream.Query, subscribe.Query = []string{"format"}, []string{"format", "after"}
	tasks.Query, task.Query = []string{"context_id", "status", "page_size", "page_token", "history_length", "include_artifacts"}, []string{"history_length", "include_artifacts"}
	return []surface.Route{list, card, send, stream, named, cancel, subscribe, socket, tasks, task}
}
