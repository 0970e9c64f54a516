package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"stoa/agentsvc"
)

// conversation sends messages to an agent, one after the other, and shows the tasks that they start. It uses the JSON-RPC
// endpoint of the agent with server-sent events (the surface package ext).
type conversation struct {
	tenantFlags
	console *console
	api     *client
	agent   string
	json    bool // print the events instead of what they say
	asks    bool // credentials and decisions that a task waits for are asked for
	// catchesInterrupts means that an interrupt cancels the running task instead of ending the program.
	catchesInterrupts bool

	// taskID and contextID are those of the next message, "" = none. runTurn sets taskID.
	taskID, contextID string
	shown             *transcript // of the task that the last message was for
}

// newConversation returns a conversation with an agent that has no messages yet.
func newConversation(flags tenantFlags, c *console, agent string) (*conversation, error) {
	api, err := flags.newTenantClient()
	if err != nil {
		return nil, err
	}
	v := &conversation{tenantFlags: flags, console: c, api: api, agent: agent}
	v.shown = &transcript{conversation: v}
	return v, nil
}

// newTextParts returns the parts of a message with text.
func newTextParts(text string) []any {
	return []any{map[string]any{"type": "text", "text": text}}
}

// runTurn sends a message of parts and shows its task until it ends, or waits for an answer in text. Decisions and
// credentials that the task waits for are asked for. A task that still waits then is continued by the next message if it
// has asked a question: another message cannot answer it.
func (v *conversation) runTurn(ctx context.Context, parts []any) error {
	if v.taskID == "" || v.shown.taskID != v.taskID {
		v.shown = &transcript{conversation: v}
	}
	for parts != nil {
		if err := v.sendMessage(ctx, parts); err != nil {
			return err
		}
		v.taskID = v.shown.taskID
		parts = v.promptForRequests(ctx)
	}
	if !v.shown.asksQuestion() {
		v.taskID = ""
	}
	return nil
}

// sendMessage sends a message of parts and shows the updates of the task until it ends or waits for input. If the
// stream breaks off, the task continues on the server. An interrupt that is caught cancels the task.
func (v *conversation) sendMessage(ctx context.Context, parts []any) error {
	var interrupted <-chan struct{}
	if v.catchesInterrupts {
		caught, release := v.console.interrupts.catch()
		defer release()
		interrupted = caught
	}
	request, stop := context.WithCancel(ctx)
	defer stop()
	received, done := make(chan answerEvent), make(chan struct{})
	defer close(done)
	go v.receiveEvents(request, v.newRequest(parts), received, done)
	cancelling := false
	for {
		select {
		case <-interrupted:
			interrupted, cancelling = nil, true
		case e, more := <-received:
			if !more {
				return nil
			}
			ended, err := v.handleEvent(ctx, e)
			if err != nil || ended {
				return err
			}
		}
		// The first event names the task.
		if cancelling && v.shown.taskID != "" {
			cancelling = false
			v.cancelTask(ctx)
		}
	}
}

// cancelTask cancels the task that is shown. The stream of its events then ends.
func (v *conversation) cancelTask(ctx context.Context) {
	err := v.api.doJSON(ctx, http.MethodPost, v.taskPath(v.shown.taskID)+"/cancel", nil, nil)
	if err != nil && ctx.Err() == nil {
		v.shown.endLine()
		v.console.printStatus("the task %s could not be cancelled: %v", v.shown.taskID, err)
	}
}

// answerEvent is one JSON object of an answer, or the error that ended it.
type answerEvent struct {
	data string
	err  error
	cut  bool // err came after the answer had begun
}

// receiveEvents sends a request, passes every JSON object of the answer to received until done is closed, and closes
// received. The server may answer with one JSON object instead of a stream, for example an error.
func (v *conversation) receiveEvents(ctx context.Context, request map[string]any, received chan<- answerEvent, done <-chan struct{}) {
	defer close(received)
	deliver := func(e answerEvent) bool {
		select {
		case received <- e:
			return true
		case <-done:
			return false
		}
	}
	resp, err := v.api.sendRequest(ctx, http.MethodPost, v.appPath("/agents/"+url.PathEscape(v.agent)), "text/event-stream", request)
	if err != nil {
		deliver(answerEvent{err: err})
		return
	}
	defer resp.Body.Close()
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		content, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBytes))
		deliver(answerEvent{string(content), err, true})
		return
	}
	for data, err := range readEvents(resp.Body) {
		if !deliver(answerEvent{data, err, true}) {
			return
		}
	}
}

// handleEvent shows one event and reports whether the task has ended or waits for input.
func (v *conversation) handleEvent(ctx context.Context, e answerEvent) (ended bool, err error) {
	if e.err == nil {
		if ended, err = v.handleUpdate(e.data); err != nil {
			v.shown.endLine()
		}
		return ended, err
	}
	if !e.cut {
		return false, e.err
	}
	v.shown.endLine()
	if ctx.Err() != nil && v.shown.taskID != "" {
		v.console.printStatus("the task %s goes on without us", v.shown.taskID)
	}
	return false, fmt.Errorf("the stream from %s broke off: %w%s", v.api.baseURL, e.err, v.shown.describeTask())
}

// newRequest returns the JSON-RPC request of message:stream. The message has a fresh id, by which the server
// recognises a repetition of the same message. A task determines its context.
func (v *conversation) newRequest(parts []any) map[string]any {
	message := map[string]any{
		"message_id": agentsvc.NewID(),
		"role":       "user",
		"parts":      parts,
	}
	if v.taskID != "" {
		message["task_id"] = v.taskID
	} else if v.contextID != "" {
		message["context_id"] = v.contextID
	}
	return map[string]any{
		"jsonrpc": "2.0",
		"id":      1,
		"method":  "message:stream",
		"params":  map[string]any{"message": message},
	}
}

// handleUpdate shows one JSON object of the answer, of which a JSON-RPC envelope is removed, and reports whether the
// task has ended or waits for input. A JSON-RPC error is returned as an [rpcError].
func (v *conversation) handleUpdate(data string) (ended bool, err error) {
	var u taskUpdate
	if err := json.Unmarshal([]byte(data), &u); err != nil {
		return false, fmt.Errorf("the server sent invalid JSON: %.80q", data)
	}
	if u.Error != nil {
		return false, u.Error
	}
	// Remove the JSON-RPC envelope.
	if len(u.Result) > 0 {
		return v.handleUpdate(string(u.Result))
	}
	if v.json {
		fmt.Fprintln(v.console.out, strings.ReplaceAll(data, "\n", " "))
	}
	return v.shown.applyUpdate(u), nil
}

// readEvents reads a stream of server-sent events (WHATWG HTML, 9.2.6) and yields the data of each event, its lines
// joined by line feeds. Comments and events without data are skipped. An error is the last value yielded; the end of
// the stream is not an error.
func readEvents(r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lines := bufio.NewReader(r)
		var data []string
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				if !errors.Is(err, io.EOF) {
					yield("", err)
				}
				// WHATWG HTML 9.2.6: an incomplete event at the end is discarded
				return
			}
			// Lines may end in LF or CRLF.
			line = strings.TrimRight(line, "\r\n")
			if line == "" {
				if data != nil && !yield(strings.Join(data, "\n"), nil) {
					return
				}
				data = nil
				continue
			}
			// Other fields (id, event, retry) and comments are not needed here: stoa call does not resume.
			if field, value, _ := strings.Cut(line, ":"); field == "data" {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
	}
}
