package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"stoa/agentsvc"
)

// callCmd is `stoa call`. It uses the JSON-RPC endpoint of an agent with server-sent events (the surface package
// ext).
type callCmd struct {
	serverFlag `embed:""`
	Agent      string `arg:"" help:"The agent's name."`
	Text       string `arg:"" help:"The message, or - to read it from standard input."`
	App        string `placeholder:"NAME" help:"The app the agent belongs to; without it, the token decides."`
	Token      string `env:"STOA_TOKEN" placeholder:"TOKEN" help:"The access token or API key."`
	Task       string `placeholder:"ID" help:"Answer or continue this task instead of starting one."`
	Context    string `placeholder:"ID" help:"Continue this conversation."`
	JSON       bool   `name:"json" help:"Print the events of the stream as they come, one JSON object a line."`
}

// Help returns the text about exit codes that kong appends to --help.
func (cmd *callCmd) Help() string {
	return "Exit codes: 0 the task completed, 1 it failed or could not be reached, 2 wrong usage, " +
		"3 it was rejected or cancelled, 4 it waits for an answer, an approval or a credential."
}

// Run sends the message and shows the task until it ends or waits for input. On a terminal it asks the human for the
// credential or decision that the task waits for and continues the same task with the answer.
func (cmd *callCmd) Run(ctx context.Context, c *console) error {
	text := cmd.Text
	if text == "-" {
		var err error
		if text, err = c.readInput("-"); err != nil {
			return err
		}
	}
	api, err := newClient(cmd.Server, cmd.Token)
	if err != nil {
		return err
	}
	show := &transcript{console: c, cmd: cmd}
	parts := []any{map[string]any{"type": "text", "text": text}}
	for {
		if err := cmd.sendMessage(ctx, c, api, show, parts); err != nil {
			return err
		}
		if parts = cmd.promptForInput(ctx, c, show); parts == nil {
			return show.reportEnd()
		}
		// The answer continues the same task; a task determines its context.
		cmd.Task, cmd.Context = show.taskID, ""
	}
}

// sendMessage sends a message of parts and shows the updates of the task until it ends or waits for input. The server
// may answer with one JSON object instead of a stream, for example an error. If the stream breaks off, the task
// continues on the server.
func (cmd *callCmd) sendMessage(ctx context.Context, c *console, api *client, show *transcript, parts []any) error {
	resp, err := api.sendRequest(ctx, http.MethodPost, cmd.agentPath(), "text/event-stream", cmd.newRequest(parts))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// A server that does not stream answers with one JSON object.
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		content, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
		if err != nil {
			return fmt.Errorf("read the answer of %s: %w", api.baseURL, err)
		}
		_, err = cmd.handleUpdate(c, show, string(content))
		return err
	}
	for data, err := range readEvents(resp.Body) {
		if err != nil {
			show.endLine()
			if ctx.Err() != nil && show.taskID != "" {
				c.printStatus("the task %s goes on without us", show.taskID)
			}
			return fmt.Errorf("the stream from %s broke off: %w%s", api.baseURL, err, show.describeTask())
		}
		ended, err := cmd.handleUpdate(c, show, data)
		if err != nil {
			show.endLine()
			return err
		}
		if ended {
			break
		}
	}
	return nil
}

// agentPath returns the path of the agent's endpoint; with --app the one below /apps/NAME.
func (cmd *callCmd) agentPath() string {
	path := "/agents/" + url.PathEscape(cmd.Agent)
	if cmd.App != "" {
		path = "/apps/" + url.PathEscape(cmd.App) + path
	}
	return path
}

// newRequest returns the JSON-RPC request of message:stream. The message has a fresh id, by which the server
// recognises a repetition of the same message.
func (cmd *callCmd) newRequest(parts []any) map[string]any {
	message := map[string]any{
		"message_id": agentsvc.NewID(),
		"role":       "user",
		"parts":      parts,
	}
	if cmd.Task != "" {
		message["task_id"] = cmd.Task
	}
	if cmd.Context != "" {
		message["context_id"] = cmd.Context
	}
	return map[string]any{
		"jsonrpc": "2.0",
		"id":      1,
		"method":  "message:stream",
		"params":  map[string]any{"message": message},
	}
}

// handleUpdate shows one JSON object of the response, of which a JSON-RPC envelope is removed, and reports whether
// the task has ended or waits for input. A JSON-RPC error is returned as an [rpcError].
func (cmd *callCmd) handleUpdate(c *console, show *transcript, data string) (ended bool, err error) {
	var u taskUpdate
	if err := json.Unmarshal([]byte(data), &u); err != nil {
		return false, fmt.Errorf("the server sent invalid JSON: %.80q", data)
	}
	if u.Error != nil {
		return false, u.Error
	}
	// Remove the JSON-RPC envelope.
	if len(u.Result) > 0 {
		return cmd.handleUpdate(c, show, string(u.Result))
	}
	if cmd.JSON {
		fmt.Fprintln(c.out, strings.ReplaceAll(data, "\n", " "))
	}
	return show.applyUpdate(u), nil
}

// taskUpdate is one JSON object of an agent's endpoint: an event of a stream, a task, or a JSON-RPC envelope around
// one. Which fields are set shows which it is.
type taskUpdate struct {
	Result   json.RawMessage `json:"result"`
	Error    *rpcError       `json:"error"`
	TaskID   string          `json:"task_id"`
	Status   *status         `json:"status"`
	Artifact *artifact       `json:"artifact"`
	Message  *message        `json:"message"` // set alone: an answer without a task
}

// status is the state of a task with the message that explains it.
type status struct {
	State   string   `json:"state"`
	Message *message `json:"message"`
}

// message is a message of the agent.
type message struct {
	Parts     []part     `json:"parts"`
	ToolCalls []toolCall `json:"tool_calls"`
}

// part is a part of a message or artifact.
type part struct {
	Type string          `json:"type"`
	Text string          `json:"text"`
	Name string          `json:"name"`
	Mime string          `json:"mime_type"`
	Data json.RawMessage `json:"data"` // an object, or a file's bytes in base64
}

// toolCall is a call of a tool, in the format of OpenAI's chat API.
type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// artifact is a result of a task; transcript shows its name and media type only.
type artifact struct {
	ID    string `json:"artifact_id"`
	Name  string `json:"name"`
	Parts []part `json:"parts"`
}

// joinText returns the text of all parts, "" for a nil message.
func (m *message) joinText() string {
	if m == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// rpcError is an error object of JSON-RPC 2.0.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Error returns the message, the detail from its data and the code.
func (e *rpcError) Error() string {
	message := e.Message
	var data struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(e.Data, &data) == nil && data.Detail != "" {
		message += ": " + data.Detail
	}
	return fmt.Sprintf("%s (JSON-RPC %d)", message, e.Code)
}
