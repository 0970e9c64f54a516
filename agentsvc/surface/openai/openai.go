// Package openai is the surface for clients of OpenAI's Chat Completions: an agent is a model there, its name the model's. The
// client keeps the conversation and sends the whole of it each time, so every call is a task of its own without a session: the
// last message is what the agent is asked, what comes before it is told to the agent as the client says it was. What the agent
// does on its way to the answer, tools above all, is not told.
//
// wire.go holds the shapes, decode.go turns a request into words, encode.go words into an answer; chat.go and models.go answer what
// the table in [Routes] names.
package openai

import (
	"cmp"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
)

// Options tune the surface. The zero value works.
type Options struct {
	BlockFor time.Duration // how long a call without a stream waits for its answer; 5 minutes
}

// requestHeaders are what the official client for JavaScript adds to each request, in a page as well, and reads what it looks for.
var (
	requestHeaders = []string{
		"OpenAI-Organization", "OpenAI-Project", "X-Stainless-Arch", "X-Stainless-Helper-Method", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version",
		"X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout",
	}
	responseHeaders = []string{"X-Should-Retry"}
)

// Routes returns what the surface answers.
func Routes(o Options) []surface.Route {
	c := handler{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	of := func(method, path string, serve surface.Handler) surface.Route {
		return surface.Route{Method: method, Pattern: "/openai/v1" + path, Kind: surface.Tenant, EncodeError: encodeError, Serve: serve, RequestHeaders: requestHeaders, ResponseHeaders: responseHeaders}
	}
	chat := of(http.MethodPost, "/chat/completions", c.handleChat)
	chat.LargeBody, chat.NoDeadline = true, true
	list, one := of(http.MethodGet, "/models", handleListModels), of(http.MethodGet, "/models/{agent}", handleGetModel)
	list.Discovery, one.Discovery = true, true
	return []surface.Route{chat, list, one}
}
