package mcp

import "encoding/json"

// What comes in.
type (
	initializeParams struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	callParams struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			ProgressToken json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	arguments struct {
		Message   string `json:"message"`
		ContextID string `json:"context_id"`
		TaskID    string `json:"task_id"`
	}
	cancelledParams struct {
		RequestID json.RawMessage `json:"requestId"`
	}
)

// What goes out.
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
	toolList struct {
		Tools []tool `json:"tools"`
	}
	tool struct {
		Name         string          `json:"name"`
		Title        string          `json:"title,omitempty"`
		Description  string          `json:"description"`
		InputSchema  json.RawMessage `json:"inputSchema"`
		OutputSchema json.RawMessage `json:"outputSchema"`
	}
	callResult struct {
		Content    []content `json:"content"`
		Structured *outcome  `json:"structuredContent,omitempty"`
		IsError    bool      `json:"isError"`
	}
	outcome struct {
		TaskID    string `json:"task_id"`
		ContextID string `json:"context_id"`
		State     string `json:"state"`
		Text      string `json:"text"`
		Data      any    `json:"data,omitempty"`
	}
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
	unspoken struct {
		JSONRPC string        `json:"jsonrpc"`
		ID      *string       `json:"id"`
		Error   unspokenError `json:"error"`
	}
	unspokenError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Supported []string `json:"supported"`
			Requested string   `json:"requested"`
		} `json:"data"`
	}
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

// newUnspoken tells of a version that is not spoken as the revisions from 2026-07-28 on have it, so that their clients find one that is
// without a guess.
func newUnspoken(version string) unspoken {
	u := unspoken{JSONRPC: "2.0", Error: unspokenError{Code: -32022, Message: "Unsupported protocol version"}}
	u.Error.Data.Supported, u.Error.Data.Requested = versions, version[:min(len(version), 40)]
	return u
}

// inputSchema is what the tool of an agent is given.
var inputSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"message":{"type":"string","description":"What the agent is asked or told."},` +
	`"context_id":{"type":"string","description":"The conversation to continue: the context_id of an earlier result. Left out, a new one begins."},` +
	`"task_id":{"type":"string","description":"The task to continue: the task_id of an earlier result whose state is input_required."}` +
	`},"required":["message"],"additionalProperties":false}`)

// outputSchema is what comes of a call.
var outputSchema = json.RawMessage(`{"type":"object","properties":{` +
	`"task_id":{"type":"string"},"context_id":{"type":"string"},` +
	`"state":{"type":"string","description":"completed; or input_required, where the agent asks something back or waits for a person; or another state of tasks."},` +
	`"text":{"type":"string","description":"What the agent answers or asks."},` +
	`"data":{"description":"The answer as JSON, where the agent gives one."}` +
	`},"required":["task_id","context_id","state","text"]}`)
