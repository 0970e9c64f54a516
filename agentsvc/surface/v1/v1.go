// Package v1 is the versioned surface: paths below /v1, JSON in camelCase, enumerations under the names of Protocol
// Buffers, and a WebSocket for each agent. wire.go holds the shapes, convert.go turns words into them and back, encode.go
// the events of a task; card.go, message.go, socket.go and task.go answer what the table in [Routes] names.
package v1

import (
	"cmp"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
)

// Options tune the surface. The zero value works.
type Options struct {
	BlockFor time.Duration // how long a blocking call waits for its task; 5 minutes
}

// Routes returns what the surface answers.
func Routes(o Options) []surface.Route {
	c := handler{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	of := func(method, path string, serve surface.Handler) surface.Route {
		return surface.Route{Method: method, Pattern: "/v1/agents" + path, Kind: surface.Tenant, Serve: serve}
	}
	list, card := of(http.MethodGet, "", handleListCards), of(http.MethodGet, "/{agent}/.well-known/agent-card.json", handleCard)
	list.Discovery, card.Discovery = true, true
	send, stream := of(http.MethodPost, "/{agent}/message:send", c.handleSend), of(http.MethodPost, "/{agent}/message:stream", handleStream)
	named := surface.Route{Method: http.MethodPost, Pattern: "/v1/message:send", Kind: surface.Tenant, Serve: c.handleSend}
	for _, r := range []*surface.Route{&send, &stream, &named} {
		r.LargeBody, r.NoDeadline = true, true
	}
	cancel := of(http.MethodPost, "/{agent}/tasks/{task}:cancel", handleCancelTask)
	cancel.Idempotent = true
	subscribe, socket := of(http.MethodGet, "/{agent}/tasks/{task}:subscribe", handleSubscribe), of(http.MethodGet, "/{agent}/stream", handleSocket)
	subscribe.NoDeadline, socket.NoDeadline = true, true
	return []surface.Route{
		list, card, send, stream, named, cancel, subscribe, socket,
		of(http.MethodGet, "/{agent}/tasks", handleListTasks), of(http.MethodGet, "/{agent}/tasks/{task}", handleGetTask),
	}
}
