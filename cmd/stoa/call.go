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

type callCmd struct {
	serverFlag `embed:""`
	Agent      string `arg:"" help:"The agent's name."`
	Text       string `arg:"" help:"What to tell it, or - to read that from standard input."`
	App        string `placeholder:"NAME" help:"The app the agent belongs to; without it, the token decides."`
	Token      string `env:"STOA_TOKEN" placeholder:"TOKEN" help:"The access token or API key."`
	Task       string `placeholder:"ID" help:"Answer or go on with this task instead of starting one."`
	Context    string `placeholder:"ID" help:"Continue this conversation."`
	JSON       bool   `name:"json" help:"Print the events of the stream as they come, one JSON object a line."`
}

// Help says what the exit codes mean.
func (cmd *callCmd) Help() string {
	return "Exit codes: 0 the task completed, 1 it failed or could not be reached, 2 wrong usage, " +
		"3 it was rejected or cancelled, 4 it waits for an answer, an approval or a credential."
}

// Run sends the message and follows the task until it ends or waits for somebody.
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
		cmd.Task, cmd.Context = show.taskID, ""
	}
}

// sendMessage sends a message of parts and shows what comes of it until the task ends or waits for somebody.
func (cmd *callCmd) sendMessage(ctx context.Context, c *console, api *client, show *transcript, parts []any) error {
	resp, err := api.sendRequest(ctx, http.MethodPost, cmd.agentPath(), "text/event-stream", cmd.newRequest(parts))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
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

func (cmd *callCmd) agentPath() string {
	path := "/agents/" + url.PathEscape(cmd.Agent)
	if cmd.App != "" {
		path = "/apps/" + url.PathEscape(cmd.App) + path
	}
	return path
}

// newRequest returns the JSON-RPC call. Its message has an id of its own, so that the server can tell it from a repetition.
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

// handleUpdate shows one answer and says whether the task is at rest.
func (cmd *callCmd) handleUpdate(c *console, show *transcript, data string) (ended bool, err error) {
	var u taskUpdate
	if err := json.Unmarshal([]byte(data), &u); err != nil {
		return false, fmt.Errorf("the server sent what is not JSON: %.80q", data)
	}
	if u.Error != nil {
		return false, u.Error
	}
	if len(u.Result) > 0 {
		return cmd.handleUpdate(c, show, string(u.Result))
	}
	if cmd.JSON {
		fmt.Fprintln(c.out, strings.ReplaceAll(data, "\n", " "))
	}
	return show.applyUpdate(u), nil
}

// taskUpdate is one answer of an agent's endpoint: an event of a stream, a task, or a JSON-RPC envelope around one.
type taskUpdate struct {
	Result   json.RawMessage `json:"result"`
	Error    *rpcError       `json:"error"`
	TaskID   string          `json:"task_id"`
	Status   *status         `json:"status"`
	Artifact *artifact       `json:"artifact"`
	Message  *message        `json:"message"` // an answer without a task
}

type status struct {
	State   string   `json:"state"`
	Message *message `json:"message"`
}

type message struct {
	Parts     []part     `json:"parts"`
	ToolCalls []toolCall `json:"tool_calls"`
}

type part struct {
	Type string          `json:"type"`
	Text string          `json:"text"`
	Name string          `json:"name"`
	Mime string          `json:"mime_type"`
	Data json.RawMessage `json:"data"` // an object, or the bytes of a file in base64
}

type toolCall struct {
	ID       string `json:"id"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type artifact struct {
	ID    string `json:"artifact_id"`
	Name  string `json:"name"`
	Parts []part `json:"parts"`
}

// joinText returns the message's text parts as one.
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

// rpcError is an error of JSON-RPC.
type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Error returns the message, its detail and the code.
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
