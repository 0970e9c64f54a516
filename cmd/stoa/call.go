package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// callCmd is `stoa call`.
type callCmd struct {
	tenantFlags `embed:""`
	Agent       string `arg:"" help:"The agent's name."`
	Text        string `arg:"" help:"The message, or - to read it from standard input."`
	Task        string `placeholder:"ID" help:"Answer or continue this task instead of starting one."`
	Context     string `placeholder:"ID" help:"Continue this conversation."`
	JSON        bool   `name:"json" help:"Print the events of the stream as they come, one JSON object a line."`
}

// Help returns the text about exit codes that kong appends to --help.
func (cmd *callCmd) Help() string {
	return "Exit codes: 0 the task completed, 1 it failed or could not be reached, 2 wrong usage, " +
		"3 it was rejected or cancelled, 4 it waits for an answer, an approval, a credential or a budget. " +
		"At a terminal it asks for these; otherwise it prints the command with which to continue."
}

// Run sends the message and shows the task until it ends or waits for input. On a terminal it asks the human for the
// answer, credential or decision that the task waits for and continues the same task with it.
func (cmd *callCmd) Run(ctx context.Context, c *console) error {
	text := cmd.Text
	if text == "-" {
		var err error
		if text, err = c.readInput("-"); err != nil {
			return err
		}
	}
	v, err := newConversation(cmd.tenantFlags, c, cmd.Agent)
	if err != nil {
		return err
	}
	v.taskID, v.contextID, v.json, v.asks = cmd.Task, cmd.Context, cmd.JSON, c.interactive && !cmd.JSON
	parts := newTextParts(text)
	for parts != nil {
		if err := v.runTurn(ctx, parts); err != nil {
			return err
		}
		parts = nil
		if v.asks && v.shown.asksQuestion() {
			v.shown.endLine()
			if answer, ok := c.promptLine(ctx, "> ", false); ok && answer != "" {
				parts = newTextParts(answer)
			}
		}
	}
	return v.shown.reportEnd()
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
	// Metadata is whatever the agent sends, see findCitations.
	Metadata json.RawMessage `json:"metadata"`
}

// citation is a passage that the answer refers to by its number.
type citation struct {
	N int `json:"n"`
	passage
}

// findCitations returns the citations in a message's metadata, none if it has others than Stoa's.
func (m *message) findCitations() []citation {
	var metadata struct {
		Citations []citation `json:"citations"`
	}
	if json.Unmarshal(m.Metadata, &metadata) != nil {
		return nil
	}
	return metadata.Citations
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
