package main

import (
	"cmp"
	"errors"
	"strings"
)

// transcript shows a task to a human while it goes on: what the agent says on out, tool calls, artifacts and what the
// task waits for on err.
type transcript struct {
	c   *console
	cmd *callCmd

	task    string
	state   string
	waiting []approval      // decisions that the task waits for
	wanted  []credential    // what else it waits for
	last    string          // the whole text of the last status
	said    strings.Builder // what out has seen of the message that is being written
	calls   map[string]bool // the tool calls shown
	midline bool
}

// add shows an update and says whether the task is at rest.
func (t *transcript) add(u update) (ended bool) {
	t.task = cmp.Or(u.TaskID, t.task)
	if u.Artifact != nil {
		t.artifact(u.Artifact)
	}
	if u.Status == nil {
		if u.Message == nil {
			return false
		}
		u.Status = &status{State: "completed", Message: u.Message}
	}
	t.state = u.Status.State
	t.last = u.Status.Message.text()
	if u.Status.Message != nil {
		for _, call := range u.Status.Message.ToolCalls {
			t.toolCall(call)
		}
		t.waiting, t.wanted = approvals(u.Status.Message.Parts), credentials(u.Status.Message.Parts)
	}
	switch t.state {
	case "submitted":
		return false
	case "working":
		t.say(t.last)
		return false
	case "completed", "input_required", "auth_required":
		t.say(t.unsaid())
	}
	return true
}

// unsaid returns what out has not seen of the last, whole text: all of it where it was not streamed.
func (t *transcript) unsaid() string {
	said := t.said.String()
	if rest, ok := strings.CutPrefix(t.last, said); ok {
		return rest
	}
	if strings.HasSuffix(said, t.last) {
		return ""
	}
	t.newline()
	return t.last
}

func (t *transcript) say(text string) {
	if text == "" {
		return
	}
	t.said.WriteString(text)
	t.midline = !strings.HasSuffix(text, "\n")
	if !t.cmd.JSON {
		t.c.print(text)
	}
}

// newline ends the line that the agent was writing.
func (t *transcript) newline() {
	if t.midline && !t.cmd.JSON {
		t.c.print("\n")
	}
	t.midline = false
}

func (t *transcript) toolCall(call toolCall) {
	if t.calls[call.ID] {
		return
	}
	if t.calls == nil {
		t.calls = map[string]bool{}
	}
	t.calls[call.ID] = true
	t.newline()
	t.said.Reset()
	if !t.cmd.JSON {
		t.c.aside("> %s(%s)", call.Function.Name, call.Function.Arguments)
	}
}

func (t *transcript) artifact(a *artifact) {
	if t.cmd.JSON {
		return
	}
	t.newline()
	kind := "data"
	if len(a.Parts) > 0 {
		kind = cmp.Or(a.Parts[0].Mime, a.Parts[0].Type)
	}
	t.c.aside("> artifact %s (%s)", cmp.Or(a.Name, a.ID), kind)
}

// end says how the task came to rest, and turns that into the exit code.
func (t *transcript) end() error {
	t.newline()
	switch t.state {
	case "completed":
		return nil
	case "failed":
		return errors.New(because("the task failed", t.last))
	case "rejected", "cancelled":
		why := t.last
		if strings.HasSuffix(t.said.String(), why) {
			why = "" // it stands there
		}
		return &exit{code: exitRejected, cause: errors.New(because("the task was "+t.state, why))}
	case "input_required", "auth_required":
		switch {
		case len(t.wanted) > 0:
			t.c.say("task %s waits for a credential of yours: send a message with its task_id and the data part "+
				`{"type": "tool_credential", "tool": %q, "value": ...}`, t.task, t.wanted[0].Tool)
		case len(t.waiting) > 0:
			t.c.say("task %s waits for an approval: POST /tasks/%s/approve or /tasks/%s/reject", t.task, t.task, t.task)
		default:
			t.c.say("task %s waits for an answer: stoa call %s TEXT --task %s", t.task, t.cmd.Agent, t.task)
		}
		return &exit{code: exitWaiting}
	}
	return errors.New("the stream ended before the task did" + t.trace())
}

// trace names the task, for messages about a stream that broke off.
func (t *transcript) trace() string {
	if t.task == "" {
		return ""
	}
	return "; the task " + t.task + " may go on without us"
}

func because(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
