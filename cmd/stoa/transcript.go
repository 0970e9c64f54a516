package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// transcript shows a task to a human while it runs: the agent's text on out, tool calls, artifacts and requests for
// input on err. One goroutine uses it.
type transcript struct {
	conversation *conversation

	taskID string
	state  string
	// approvals, credentials and the name of a budget are what the task waits for, by its last status.
	approvals   []approval
	credentials []credential
	budget      string
	citations   []citation // of the last status
	lastText    string     // complete text of the last status
	// printed is the text of the message in progress that out has received, also with --json, where it is not shown.
	printed strings.Builder
	// shownCalls are the ids of the tool calls that were printed, since every update repeats them.
	shownCalls map[string]bool
	lineOpen   bool // the last text did not end with a line feed
}

// applyUpdate shows an update and reports whether the task has ended or waits for input. An answer without a task
// counts as a completed one.
func (t *transcript) applyUpdate(u taskUpdate) (ended bool) {
	t.taskID = cmp.Or(u.TaskID, t.taskID)
	if u.Artifact != nil {
		t.printArtifact(u.Artifact)
	}
	// Neither artifact nor status: an answer without a task is shown like a completed task.
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
		t.budget = findBudget(u.Status.Message.Parts)
		t.citations = u.Status.Message.findCitations()
	}
	switch t.state {
	case "submitted":
		return false
	// The text of a working status is a piece of the answer that continues what was printed.
	case "working":
		t.printText(t.lastText)
		return false
	// The text of a final status is the whole answer or question.
	case "completed", "input_required", "auth_required":
		t.printText(t.unprintedText())
	}
	return true
}

// unprintedText returns what was not yet printed of the last complete text. A stream sends the text first in pieces
// and then as a whole; without streaming only the whole arrives. If the whole does not continue the pieces, it is
// printed on a new line.
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

// printText prints a piece of the agent's text and records it. With --json only the record is kept.
func (t *transcript) printText(text string) {
	if text == "" {
		return
	}
	t.printed.WriteString(text)
	t.lineOpen = !strings.HasSuffix(text, "\n")
	if !t.conversation.json {
		t.conversation.console.printText(text)
	}
}

// endLine ends the line of the agent's text, before a message on err.
func (t *transcript) endLine() {
	if t.lineOpen && !t.conversation.json {
		t.conversation.console.printText("\n")
	}
	t.lineOpen = false
}

// printToolCall prints a tool call once. The text after it is a new message.
func (t *transcript) printToolCall(call toolCall) {
	if t.shownCalls[call.ID] {
		return
	}
	if t.shownCalls == nil {
		t.shownCalls = map[string]bool{}
	}
	t.shownCalls[call.ID] = true
	t.endLine()
	// Text after a tool call belongs to the next message of the model.
	t.printed.Reset()
	if !t.conversation.json {
		t.conversation.console.printDimmed("> %s(%s)", call.Function.Name, call.Function.Arguments)
	}
}

// printArtifact prints the name and the media type of an artifact.
func (t *transcript) printArtifact(a *artifact) {
	if t.conversation.json {
		return
	}
	t.endLine()
	kind := "data"
	if len(a.Parts) > 0 {
		kind = cmp.Or(a.Parts[0].Mime, a.Parts[0].Type)
	}
	t.conversation.console.printDimmed("> artifact %s (%s)", cmp.Or(a.Name, a.ID), kind)
}

// printCitations prints the passages that the answer refers to, a line each.
func (t *transcript) printCitations() {
	if t.conversation.json {
		return
	}
	for _, c := range t.citations {
		// A title or a heading that a document brings must not begin another line.
		line := strings.Join(strings.Fields(fmt.Sprintf("[%d] %s", c.N, c.describe())), " ")
		t.conversation.console.printText(line + "\n")
	}
}

// reportEnd prints how the task ended or what it waits for, and returns the error with the matching exit code.
func (t *transcript) reportEnd() error {
	t.endLine()
	switch t.state {
	case "completed":
		t.printCitations()
		return nil
	case "failed":
		return errors.New(formatReason("the task failed", t.lastText))
	case "rejected", "cancelled":
		why := t.lastText
		if strings.HasSuffix(t.printed.String(), why) {
			why = "" // it is already printed
		}
		return &exitError{code: exitRejected, cause: errors.New(formatReason("the task was "+t.state, why))}
	case "input_required", "auth_required":
		t.printContinuation()
		return &exitError{code: exitWaiting}
	}
	return errors.New("the stream ended before the task did" + t.describeTask())
}

// waitsForInput reports whether the task waits for an answer, an approval, a credential or a budget.
func (t *transcript) waitsForInput() bool {
	return t.state == "input_required" || t.state == "auth_required"
}

// asksQuestion reports whether the task waits for an answer in text.
func (t *transcript) asksQuestion() bool {
	return t.state == "input_required" && len(t.approvals) == 0 && len(t.credentials) == 0 && t.budget == ""
}

// printContinuation prints what the task waits for and the command that continues it, or that shows one that continues
// by itself.
func (t *transcript) printContinuation() {
	v, id := t.conversation, quoteWord(t.taskID)
	switch {
	case len(t.credentials) > 0:
		v.console.printStatus("task %s waits for a credential of yours: stoa chat %s --task %s%s", t.taskID, quoteWord(v.agent), id, v.formatFlags())
	case len(t.approvals) > 0:
		v.console.printStatus("task %s waits for an approval: stoa task approve %s%s, or stoa task reject", t.taskID, id, v.formatFlags())
	case t.budget != "":
		v.console.printStatus("task %s waits for the budget %s and continues by itself when the budget allows it: stoa task get %s%s", t.taskID, quoteWord(t.budget), id, v.formatFlags())
	default:
		v.console.printStatus("task %s waits for an answer: stoa call %s TEXT --task %s%s", t.taskID, quoteWord(v.agent), id, v.formatFlags())
	}
}

// describeTask returns the addition to an error of the stream that names the task, which continues on the server.
func (t *transcript) describeTask() string {
	if t.taskID == "" {
		return ""
	}
	return "; the task " + t.taskID + " may go on without us"
}

// formatReason returns what, followed by why unless that is "".
func formatReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}
