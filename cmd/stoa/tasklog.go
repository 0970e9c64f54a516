package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// taskLogCmd is `stoa task log`.
type taskLogCmd struct {
	taskFlags `embed:""`
	Limit     int    `placeholder:"N" help:"At most so many entries, up to 1000 (200)."`
	Cursor    string `placeholder:"TOKEN" help:"Continue the log after the page that ended with this token."`
}

// logEntry is an entry of a log in the JSON of the API, as far as its line shows it.
type logEntry struct {
	Seq    int64         `json:"seq"`
	At     string        `json:"at"`
	Kind   string        `json:"kind"`
	Agent  string        `json:"agent"`
	Status datedStatus   `json:"status"`
	Text   roledMessage  `json:"message"`
	Model  logModelCall  `json:"model_call"`
	Call   logToolCall   `json:"tool_call"`
	Result logToolResult `json:"tool_result"`
	Asked  approval      `json:"approval"`
	Found  struct {
		Guardrail, Phase, Rule, Action string
	} `json:"finding"`
	Decided struct {
		CallID  string `json:"call_id"`
		Outcome string `json:"outcome"`
		User    string `json:"user"`
	} `json:"decision"`
	Checkpoint struct {
		ID     int64  `json:"id"`
		Reason string `json:"reason"`
		Step   int    `json:"step"`
	} `json:"checkpoint"`
	Attempt struct {
		Number int64  `json:"number"`
		Reason string `json:"reason"`
	} `json:"attempt"`
	Artifact artifact `json:"artifact"`
}

// logModelCall is a call of a model.
type logModelCall struct {
	Model    string  `json:"model"`
	Input    int64   `json:"input_tokens"`
	Output   int64   `json:"output_tokens"`
	Seconds  float64 `json:"seconds"`
	Retries  int64   `json:"retries"`
	Fallback bool    `json:"fallback"`
	Charge   string  `json:"charge_decimal"`
	Currency string  `json:"currency"`
}

// logToolCall is a tool call that starts after a decision.
type logToolCall struct {
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
}

// logToolResult is the end of a tool call.
type logToolResult struct {
	Tool    string  `json:"tool"`
	Seconds float64 `json:"seconds"`
	Text    *string `json:"text"`
	Failed  bool    `json:"failed"`
}

// Run prints one page of the log, and how to get the next one.
func (cmd *taskLogCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient()
	if err != nil {
		return err
	}
	query := url.Values{}
	if cmd.Limit != 0 {
		query.Set("page_size", strconv.Itoa(cmd.Limit))
	}
	if cmd.Cursor != "" {
		query.Set("page_token", cmd.Cursor)
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, strings.TrimSuffix(cmd.taskPath(cmd.ID)+"/log?"+query.Encode(), "?"), nil, &answer); err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	var page struct {
		Entries []logEntry
		Next    string `json:"next_page_token"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	rows := make([][]string, len(page.Entries))
	for i, e := range page.Entries {
		rows[i] = []string{strconv.FormatInt(e.Seq, 10), e.At, e.Kind, e.Agent, strings.Join(strings.Fields(e.describe()), " ")}
	}
	if err := c.printTable([]string{"SEQ", "AT", "KIND", "AGENT", "WHAT"}, rows); err != nil {
		return err
	}
	c.printNextPage(page.Next)
	return nil
}

// describe returns what happened, in one line.
func (e *logEntry) describe() string {
	switch e.Kind {
	case "status":
		return e.Status.State + " " + e.Status.Message.joinText()
	case "message":
		text := e.Text.Role + ": " + e.Text.joinText()
		for _, call := range e.Text.ToolCalls {
			text += " > " + call.Function.Name + "(" + call.Function.Arguments + ")"
		}
		return text
	case "model_call":
		return e.Model.describe()
	case "tool_call":
		return e.Call.Tool + "(" + string(e.Call.Arguments) + ")"
	case "tool_result":
		return e.Result.describe()
	case "approval":
		return e.Asked.describe()
	case "decision":
		return strings.TrimSpace(e.Decided.CallID + " " + e.Decided.Outcome + " " + e.Decided.User)
	case "finding":
		return fmt.Sprintf("%s: %s %s: %s", e.Found.Guardrail, e.Found.Phase, e.Found.Rule, e.Found.Action)
	case "checkpoint":
		return fmt.Sprintf("%d %s step %d", e.Checkpoint.ID, e.Checkpoint.Reason, e.Checkpoint.Step)
	case "attempt":
		return fmt.Sprintf("%d: %s", e.Attempt.Number, e.Attempt.Reason)
	case "artifact":
		return e.Artifact.Name + " " + e.Artifact.ID
	}
	return ""
}

// describe returns the model with its tokens, time and charge.
func (m logModelCall) describe() string {
	text := fmt.Sprintf("%s: %d in, %d out", m.Model, m.Input, m.Output)
	if m.Seconds > 0 {
		text += fmt.Sprintf(", %.3g s", m.Seconds)
	}
	if m.Charge != "" {
		text += ", " + m.Charge + " " + m.Currency
	}
	if m.Retries > 0 {
		text += fmt.Sprintf(", retries: %d", m.Retries)
	}
	if m.Fallback {
		text += ", fallback"
	}
	return text
}

// describe returns the tool with its time, and its answer if the caller may see it.
func (r logToolResult) describe() string {
	text := r.Tool
	if r.Seconds > 0 {
		text += fmt.Sprintf(", %.3g s", r.Seconds)
	}
	if r.Failed {
		text += ", failed"
	}
	if r.Text != nil {
		text += ": " + *r.Text
	}
	return text
}
