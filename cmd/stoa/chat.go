package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"stoa/agentsvc"
)

// chatCmd is `stoa chat`.
type chatCmd struct {
	tenantFlags `embed:""`
	Agent       string `arg:"" help:"The agent's name."`
	Context     string `placeholder:"ID" help:"Continue this conversation."`
	Task        string `placeholder:"ID" help:"Begin with what this task waits for."`
}

// Help returns the text about the conversation that kong appends to --help.
func (cmd *chatCmd) Help() string {
	return "Each line is a message; /exit or the end of the input ends the conversation. Ctrl-C cancels the task that runs, " +
		"a second time it ends the program. Questions, tool calls to approve and credentials are asked for. " +
		"Standard input may be a file or a pipe: a line for each message and each answer. " +
		"The exit code is that of stoa call for the last message."
}

// Run sends each line of the input as a message of one conversation and shows the answers.
func (cmd *chatCmd) Run(ctx context.Context, c *console) error {
	v, err := newConversation(cmd.tenantFlags, c, cmd.Agent)
	if err != nil {
		return err
	}
	// The client names the conversation, so that it can be continued also if its first message is not answered.
	v.contextID, v.asks, v.catchesInterrupts = cmd.Context, true, true
	if v.contextID == "" {
		v.contextID = agentsvc.NewID()
	}
	var last error // of the last message
	if cmd.Task != "" {
		if last, err = cmd.resumeTask(ctx, v); err != nil {
			return err
		}
	}
	prompt := ""
	if c.interactive {
		prompt = "> "
	}
	for ctx.Err() == nil {
		line, ok := c.promptLine(ctx, prompt, false)
		switch {
		case ctx.Err() != nil:
		case !ok || line == "/exit":
			if c.interactive {
				c.printStatus("continue with: stoa chat %s --context %s%s", quoteWord(v.agent), quoteWord(v.contextID), v.formatFlags())
			}
			return withoutText(last)
		case line != "":
			last = v.runChatTurn(ctx, newTextParts(line))
		}
	}
	return ctx.Err()
}

// runChatTurn sends a message of parts and prints how its task ended. The error, which is printed, has the exit code.
func (v *conversation) runChatTurn(ctx context.Context, parts []any) error {
	err := v.runTurn(ctx, parts)
	switch {
	case ctx.Err() != nil:
		return err
	case err == nil && v.taskID != "": // the next line answers the question
		v.shown.endLine()
		return &exitError{code: exitWaiting}
	case err == nil:
		err = v.shown.reportEnd()
	}
	if err != nil {
		v.console.reportError(err)
	}
	return err
}

// resumeTask shows what a task waits for, and asks for it unless that is an answer in text, which is the next line. It
// returns the outcome of the task as that of the last message.
func (cmd *chatCmd) resumeTask(ctx context.Context, v *conversation) (last, err error) {
	var answer json.RawMessage
	if err := v.api.doJSON(ctx, http.MethodGet, cmd.taskPath(cmd.Task), nil, &answer); err != nil {
		return nil, err
	}
	var t struct {
		ContextID string `json:"context_id"`
		Agent     string `json:"agent"`
	}
	if err := json.Unmarshal(answer, &t); err != nil {
		return nil, err
	}
	if t.Agent != v.agent {
		return nil, &exitError{code: exitUsage, cause: errors.New("task " + cmd.Task + " is one of the agent " + t.Agent)}
	}
	v.contextID, v.taskID = t.ContextID, cmd.Task
	if _, err := v.handleUpdate(string(answer)); err != nil {
		return nil, err
	}
	if !v.shown.waitsForInput() {
		return nil, errors.New("task " + cmd.Task + " waits for nothing: it is " + v.shown.state)
	}
	return v.runChatTurn(ctx, v.promptForRequests(ctx)), nil
}

// withoutText returns err with its exit code and without its text, which was printed.
func withoutText(err error) error {
	if err == nil {
		return nil
	}
	code := exitFailed
	var e *exitError
	if errors.As(err, &e) {
		code = e.code
	}
	return &exitError{code: code}
}
