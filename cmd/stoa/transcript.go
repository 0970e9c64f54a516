package main

import (
	"cmp"
	"errors"
	"strings"
)

// transcript shows a task to a human while it goes on: what the agent says on out, tool calls, artifacts and what the
// task waits for on err.
type transcript struct {
	console *console
	cmd     *callCmd

	taskID      string
	state       string
	approvals   []approval      // decisions that the task waits for
	credentials []credential    // what else it waits for
	lastText    string          // the whole text of the last status
	printed     strings.Builder // what out has seen of the message that is being written
	shownCalls  map[string]bool // the tool calls shown
	lineOpen    bool
}

// applyUpdate shows an update and says whether the task is at rest.
func (t *transcript) applyUpdate(u taskUpdate) (ended bool) {
	t.taskID = cmp.Or(u.TaskID, t.taskID)
	if u.Artifact != nil {
		t.printArtifact(u.Artifact)
	}
	if u.Status == nil {
		if u.Message == nil {
			return false
		}
		u.Status = &status{State: "completed", Message: u.Message}
	}
	t.state = u.Status.State
	t.lastText = u.Status.Message.joinText()
	if u.Status.Message != nil {
		for _, call := range u.Status.Message.ToolCalls {
			t.printToolCall(call)
		}
		t.approvals, t.credentials = findApprovals(u.Status.Message.Parts), findCredentials(u.Status.Message.Parts)
	}
	switch t.state {
	case "submitted":
		return false
	case "working":
		t.printText(t.lastText)
		return false
	case "completed", "input_required", "auth_required":
		t.printText(t.unprintedText())
	}
	return true
}

// unprintedText returns what out has not seen of the last, whole text: all of it where it was not streamed.
func (t *transcript) unprintedText() string {
	written := t.printed.String()
	if remaining, ok := strings.CutPrefix(t.lastText, written); ok {
		return remaining
	}
	if strings.HasSuffix(written, t.lastText) {
		return ""
	}
	t.endLine()
	return t.lastText
}

func (t *transcript) printText(text string) {
	if text == "" {
		return
	}
	t.printed.WriteString(text)
	t.lineOpen = !strings.HasSuffix(text, "\n")
	if !t.cmd.JSON {
		t.console.printText(text)
	}
}

// endLine ends the line that the agent was writing.
func (t *transcript) endLine() {
	if t.lineOpen && !t.cmd.JSON {
		t.console.printText("\n")
	}
	t.lineOpen = false
}

func (t *transcript) printToolCall(call toolCall) {
	if t.shownCalls[call.ID] {
		return
	}
	if t.shownCalls == nil {
		t.shownCalls = map[string]bool{}
	}
	t.shownCalls[call.ID] = true
	t.endLine()
	t.printed.Reset()
	if !t.cmd.JSON {
		t.console.printDimmed("> %s(%s)", call.Function.Name, call.Function.Arguments)
	}
}

func (t *transcript) printArtifact(a *artifact) {
	if t.cmd.JSON {
		return
	}
	t.endLine()
	kind := "data"
	if len(a.Parts) > 0 {
		kind = cmp.Or(a.Parts[0].Mime, a.Parts[0].Type)
	}
	t.console.printDimmed("> artifact %s (%s)", cmp.Or(a.Name, a.ID), kind)
}

// reportEnd says how the task came to rest, and turns that into the exit code.
func (t *transcript) reportEnd() error {
	t.endLine()
	switch t.state {
	case "completed":
		return nil
	case "failed":
		return errors.New(formatReason("the task failed", t.lastText))
	case "rejected", "cancelled":
		why := t.lastText
		if strings.HasSuffix(t.printed.String(), why) {
			why = "" // it stands there
		}
		return &exitError{code: exitRejected, cause: errors.New(formatReason("the task was "+t.state, why))}
	case "input_required", "auth_required":
		switch {
		case len(t.credentials) > 0:
			t.console.printStatus("task %s waits for a credential of yours: send a message with its task_id and the data part "+
				`{"type": "tool_credential", "tool": %q, "value": ...}`, t.taskID, t.credentials[0].Tool)
		case len(t.approvals) > 0:
			t.console.printStatus("task %s waits for an approval: POST /tasks/%s/approve or /tasks/%s/reject", t.taskID, t.taskID, t.taskID)
		default:
			t.console.printStatus("task %s waits for an answer: stoa call %s TEXT --task %s", t.taskID, t.cmd.Agent, t.taskID)
		}
		return &exitError{code: exitWaiting}
	}
	return errors.New("the stream ended before the task did" + t.describeTask())
}

// describeTask names the task, for messages about a stream that broke off.
func (t *transcript) describeTask() string {
	if t.taskID == "" {
		return ""
	}
	return "; the task " + t.taskID + " may go on without us"
}

func formatReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
