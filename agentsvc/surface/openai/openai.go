// Package openai implements the surface for clients of OpenAI's APIs Chat Completions and Responses (docs/api/openai.md):
// an agent is a model, and the agent's name is the model's name.
//
// In Chat Completions the client keeps the conversation and sends all of it with every request. So every request is a
// task of its own without a session: the last message is what the agent is asked, and the messages before it are passed
// to the agent as the client sent them ([agentsvc.Message.PriorMessages]). Tool calls and other intermediate steps of the
// agent are not part of a completion. In the Responses API the server keeps the conversation: a request that names the
// previous response continues its context, and tool calls are items of the output.
//
// A request passes through admitChat (chat.go) or admitResponse (response.go), which decode it (wire.go, decode.go;
// item.go, input.go), authorize the caller and reserve budgets and limits. handleChat and
// handleCreateResponse submit the task and write the answer as a whole or as a stream of events (encode.go,
// output.go). approval.go has how a tool call that waits for a decision is shown and decided in both. models.go
// lists the agents as models, errors.go has OpenAI's form of errors. The credential is the API key of the client library;
// package surface resolves the app from it.
package openai

import (
	"cmp"
	"net/http"
	"time"

	"stoa/agentsvc/surface"
)

// Options configure the endpoints. The zero value is valid.
type Options struct {
	// BlockFor is how long a call without a stream waits for its answer; after it the call fails with 504 while the
	// task continues. 0 = 5 minutes.
	BlockFor time.Duration
}

// requestHeaders are the headers that the official client for JavaScript adds to every request, responseHeaders
// those that it reads. Both are needed for CORS: a browser asks for permission for each of them.
var (
	requestHeaders = []string{
		"OpenAI-Organization", "OpenAI-Project", "X-Stainless-Arch", "X-Stainless-Helper-Method", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version",
		"X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout",
	}
	responseHeaders = []string{"X-Should-Retry"}
)

// Routes returns the endpoints. Package surface mounts each of them below /apps/{app} as well, so that the base URL
// may name the app.
func Routes(o Options) []surface.Route {
	c := handler{blockFor: cmp.Or(o.BlockFor, 5*time.Minute)}
	of := func(method, path string, serve surface.Handler) surface.Route {
		return surface.Route{Method: method, Pattern: "/openai/v1" + path, Kind: surface.Tenant, AnyQuery: true, EncodeError: encodeError, Serve: serve, RequestHeaders: requestHeaders, ResponseHeaders: responseHeaders}
	}
	chat := of(http.MethodPost, "/chat/completions", c.handleChat)
	// An answer lasts as long as its task.
	chat.LargeBody, chat.NoDeadline = true, true
	create := of(http.MethodPost, "/responses", c.handleCreateResponse)
	create.LargeBody, create.NoDeadline = true, true
	get, cancel := of(http.MethodGet, "/responses/{response}", handleGetResponse), of(http.MethodPost, "/responses/{response}/cancel", handleCancelResponse)
	get.Query, get.NoDeadline = []string{"stream"}, true
	list, one := of(http.MethodGet, "/models", handleListModels), of(http.MethodGet, "/models/{agent}", handleGetModel)
	// Discovery: no credential is needed, the visibility of an agent decides.
	list.Discovery, one.Discovery = true, true
	return []surface.Route{chat, create, get, cancel, list, one}
}
