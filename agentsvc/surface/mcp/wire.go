package mcp

import (
	"encoding/json"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
)

// Request types. Members that do not act here, such as the client's name, are ignored.
type (
	initializeParams struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	// callParams are the params of tools/call. Arguments refers to the request's body instead of copying it.
	callParams struct {
		Name      string             `json:"name"`
		Arguments decode.AliasedJSON `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	// arguments are the tool's arguments; inputSchema describes them.
	arguments struct {
		Message   string `json:"message"`
		ContextID string `json:"context_id"`
		TaskID    string `json:"task_id"`
	}
	// cancelledParams name the request to cancel; its ID may be a text or a number.
	cancelledParams struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	// requestParams are what every request of the newest revision states about itself.
	requestParams struct {
		Name string `json:"name"`
		Meta struct {
			Version      string          `json:"io.modelcontextprotocol/protocolVersion"`
			Capabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		} `json:"_meta"`
	}
)

// Response types.
type (
	initializeResult struct {
		ProtocolVersion string         `json:"protocolVersion"`
		Capabilities    capabilities   `json:"capabilities"`
		ServerInfo      implementation `json:"serverInfo"`
		Instructions    string         `json:"instructions,omitempty"`
	}
	capabilities struct {
		Tools struct{} `json:"tools"`
	}
	implementation struct {
		Name    string `json:"name"`
		Title   string `json:"title,omitempty"`
		Version string `json:"version"`
	}
	discoverResult struct {
		resultBase
		SupportedVersions []string     `json:"supportedVersions"`
		Capabilities      capabilities `json:"capabilities"`
		Instructions      string       `json:"instructions,omitempty"`
	}
	// resultBase is embedded in every result; it is empty for older revisions. TTL is in milliseconds.
	resultBase struct {
		ResultType string      `json:"resultType,omitempty"`
		TTL        *int        `json:"ttlMs,omitempty"`
		Scope      string      `json:"cacheScope,omitempty"`
		Meta       *resultMeta `json:"_meta,omitempty"`
	}
	resultMeta struct {
		Server implementation `json:"io.modelcontextprotocol/serverInfo"`
	}
	toolList struct {
		resultBase
		Tools []tool `json:"tools"`
	}
	tool struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
	}
	// callResult is the result of tools/call. Structured repeats the outcome for programs, as outputSchema
	// describes it.
	callResult struct {
		resultBase
		Content    []content    `json:"content"`
		Structured *taskOutcome `json:"structuredContent,omitempty"`
		IsError    bool         `json:"isError"`
	}
	taskOutcome struct {
		TaskID    string `json:"task_id"`
		ContextID string `json:"context_id"`
		State     string `json:"state"`
		Text      string `json:"text"`
		Data      any    `json:"data,omitempty"`
		Citations any    `json:"citations,omitempty"`
		Error     any    `json:"error,omitempty"`
	}
	// content is one item of a result; Type says which members are used: text, image, audio, resource_link or
	// resource.
	content struct {
		Type     string    `json:"type"`
		Text     *string   `json:"text,omitempty"`
		Data     []byte    `json:"data,omitempty"`
		MimeType string    `json:"mimeType,omitempty"`
		URI      string    `json:"uri,omitempty"`
		Name     string    `json:"name,omitempty"`
		Resource *resource `json:"resource,omitempty"`
	}
	resource struct {
		URI      string `json:"uri"`
		MimeType string `json:"mimeType,omitempty"`
		Blob     []byte `json:"blob"`
	}
	headerMismatch struct {
		Header string `json:"header"`
	}
	refusedVersion struct {
		Supported []string `json:"supported"`
		Requested string   `json:"requested"`
	}
	// notification is a progress notification on the stream of a call.
	notification struct {
		JSONRPC string   `json:"jsonrpc"`
		Method  string   `json:"method"`
		Params  progress `json:"params"`
	}
	progress struct {
		Token    json.RawMessage `json:"progressToken"`
		Progress int64           `json:"progress"`
		Message  string          `json:"message,omitempty"`
	}
)

// newImplementation returns the server's name and version: those of the agent.
func newImplementation(c agentsvc.Card) implementation {
	return implementation{c.Agent, c.Name, c.Version}
}

// inputSchema is the JSON Schema of the tool's arguments. Its descriptions are read by the client's model.
var inputSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"message":{"type":"string","description":"What the agent is asked or told."},` +
	`"context_id":{"type":"string","description":"The conversation to continue: the context_id of an earlier result. Left out, a new one begins."},` +
	`"task_id":{"type":"string","description":"The task to continue: the task_id of an earlier result whose state is input_required."}` +
	`},"required":["message"],"additionalProperties":false}`)

// outputSchema is the JSON Schema of taskOutcome.
var outputSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"task_id":{"type":"string"},"context_id":{"type":"string"},` +
	`"state":{"type":"string","description":"completed; or input_required, where the agent asks something back or waits for a person; or another state of tasks."},` +
	`"text":{"type":"string","description":"What the agent answers or asks."},` +
	`"data":{"description":"The answer as JSON, where the agent gives one."},` +
	`"citations":{"type":"array","items":{"type":"object"},"description":"The passages of documents that the answer refers to by its marks, such as [1]: n, store, document, title, page, heading, url, quote."},` +
	`"error":{"type":"object","description":"Why the task failed: code, and details such as the budget, the limit or the model."}` +
	`},"required":["task_id","context_id","state","text"]}`)
