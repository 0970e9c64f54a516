package openai

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/surface/stream"
)

// Statuses of responses and of their items.
const (
	statusQueued     = "queued"
	statusInProgress = "in_progress"
	statusCompleted  = "completed"
	statusIncomplete = "incomplete"
	statusFailed     = "failed"
	statusCancelled  = "cancelled"
)

// responseEncoder makes a response of its events. It belongs to the goroutine of its request.
type responseEncoder struct {
	requestID string
	// body is the response as it is after the events so far.
	body responseBody
	// sequence is the sequence number of the next event of the stream.
	sequence int64
	// messages are those whose items are in progress, calls the tool calls without a result, in their order.
	messages []*openMessage
	calls    []openCall
	// approved are the calls that a decision of this turn has approved.
	approved map[agentsvc.CallID]bool
	ended    bool           // the task has ended or waits; further events are ignored
	state    agentsvc.State // of the task then
}

// openMessage is a message whose text is being streamed.
type openMessage struct {
	id   agentsvc.MessageID
	at   textPosition
	text strings.Builder
	// citations are set with the last message of the turn.
	citations *citations
}

// openCall is a tool call that has no result yet. frame is the path of the nested agent that makes it.
type openCall struct {
	frame    string
	call     agentsvc.ToolCall
	approval *string // the approval request that let it run
}

// newResponseEncoder returns the encoder of a response of an agent.
func newResponseEncoder(requestID, agent string) *responseEncoder {
	return &responseEncoder{requestID: requestID, approved: map[agentsvc.CallID]bool{}, body: responseBody{
		Object: "response", Status: statusInProgress, Model: agent, Output: []any{}, Metadata: map[string]any{},
		responseParameters: responseParameters{Store: true, ParallelToolCalls: true, ToolChoice: "auto", Tools: []struct{}{}, Text: responseText{responseFormat{"text"}}},
	}}
}

// nameEvent returns the name of the server-sent event of a body.
func nameEvent(body any) string {
	if typed, ok := body.(interface{ eventType() string }); ok {
		return typed.eventType()
	}
	return ""
}

// encodeEvent returns the events of the stream for ev, nil if there are none.
func (e *responseEncoder) encodeEvent(ev agentsvc.Event) any { return e.applyEvent(ev) }

// applyEvent advances the response by ev and returns the events of the stream that say so.
func (e *responseEncoder) applyEvent(ev agentsvc.Event) (out stream.Bodies) {
	if e.ended {
		return nil
	}
	if e.body.ID == "" {
		out = e.begin(ev)
	}
	switch st := ev.Status; {
	case isSettled(ev):
		return append(out, e.end(ev)...)
	case st != nil && st.State == agentsvc.Working && e.body.Status == statusQueued:
		e.body.Status = statusInProgress
		return append(out, e.newLifecycle("response.in_progress"))
	case ev.Chunk != nil:
		return append(out, e.appendText(ev.Chunk.Message, ev.Chunk.Text)...)
	case ev.Message != nil && ev.Message.Role == agentsvc.RoleAgent:
		return append(out, e.applyMessage(ev)...)
	case ev.Decision != nil && ev.Decision.Outcome == agentsvc.OutcomeApproved:
		e.approved[ev.Decision.Call] = true
	case ev.Call != nil:
		c := openCall{frame: ev.Frame, call: *ev.Call}
		if e.approved[ev.Call.ID] {
			id := newApprovalID(ev.Task, ev.Call.ID)
			c.approval = &id
		}
		e.calls = append(e.calls, c)
	case ev.Result != nil:
		return append(out, e.endCall(ev)...)
	}
	return out
}

// begin sets what the first event of the turn says of the response.
func (e *responseEncoder) begin(ev agentsvc.Event) stream.Bodies {
	e.body.ID, e.body.CreatedAt = newResponseID(ev.Task, ev.Seq), ev.At.Unix()
	opening := ev.Message
	if ev.Status != nil {
		opening = ev.Status.Message
	}
	if ev.Status != nil && ev.Status.State == agentsvc.Submitted {
		e.body.Status = statusQueued
	}
	if opening != nil && opening.Role == agentsvc.RoleUser {
		e.body.Metadata = maps.Clone(opening.Metadata)
		e.body.User, e.body.SafetyIdentifier = e.takeMetadata("user"), e.takeMetadata("safety_identifier")
		if previous := e.takeMetadata(previousKey); previous != "" {
			e.body.PreviousResponseID = &previous
		}
	}
	if e.body.Metadata == nil {
		e.body.Metadata = map[string]any{}
	}
	return stream.Bodies{e.newLifecycle("response.created")}
}

// takeMetadata removes a member of the metadata that addTo has set, and returns its value.
func (e *responseEncoder) takeMetadata(name string) string {
	value, _ := e.body.Metadata[name].(string)
	delete(e.body.Metadata, name)
	return value
}

// applyMessage applies a message of an agent. The text of a nested agent is addressed to the agent that called it: it is
// part of the response only if deltas have begun to show it.
func (e *responseEncoder) applyMessage(ev agentsvc.Event) (out stream.Bodies) {
	if ev.Frame == "" || e.findMessage(ev.Message.ID) != nil {
		out = e.endMessage(*ev.Message, statusCompleted)
	}
	for _, c := range ev.Message.ToolCalls {
		e.calls = append(e.calls, openCall{frame: ev.Frame, call: c})
	}
	return out
}

// findMessage returns the message whose item is in progress, nil if it has none.
func (e *responseEncoder) findMessage(id agentsvc.MessageID) *openMessage {
	i := slices.IndexFunc(e.messages, func(m *openMessage) bool { return m.id == id })
	if i < 0 {
		return nil
	}
	return e.messages[i]
}

// appendText adds text to a message. The first text adds the message's item.
func (e *responseEncoder) appendText(id agentsvc.MessageID, text string) (out stream.Bodies) {
	if text == "" {
		return nil
	}
	m := e.findMessage(id)
	if m == nil {
		m = &openMessage{id: id, at: textPosition{ItemID: "msg_" + string(id), OutputIndex: len(e.body.Output)}}
		e.messages = append(e.messages, m)
		out = append(out, e.addItem(messageItem{m.at.ItemID, "message", "assistant", statusInProgress, []outputText{}, nil}),
			partEvent{e.newHead("response.content_part.added"), m.at, newOutputText("")})
	}
	m.text.WriteString(text)
	return append(out, textDeltaEvent{e.newHead("response.output_text.delta"), m.at, text, []struct{}{}})
}

// endMessage adds what deltas have not contained of a message, and ends its item with a status.
func (e *responseEncoder) endMessage(m agentsvc.Message, status string) (out stream.Bodies) {
	whole := messageText(m)
	if shown := e.findMessage(m.ID); shown != nil {
		whole = strings.TrimPrefix(whole, shown.text.String())
	}
	out = e.appendText(m.ID, whole)
	if shown := e.findMessage(m.ID); shown != nil {
		shown.citations = newCitations(&m)
		out = append(out, e.endItem(shown, status)...)
	}
	return out
}

// endItem ends the item of a message.
func (e *responseEncoder) endItem(m *openMessage, status string) stream.Bodies {
	e.messages = slices.DeleteFunc(e.messages, func(other *openMessage) bool { return other == m })
	part := newOutputText(m.text.String())
	return stream.Bodies{
		textDoneEvent{e.newHead("response.output_text.done"), m.at, part.Text, []struct{}{}},
		partEvent{e.newHead("response.content_part.done"), m.at, part},
		e.setItem(m.at.OutputIndex, messageItem{m.at.ItemID, "message", "assistant", status, []outputText{part}, m.citations}),
	}
}

// endCall adds the item of a tool call whose result ev is. It is added then and not before, since a call may turn out to
// wait for a decision.
func (e *responseEncoder) endCall(ev agentsvc.Event) stream.Bodies {
	c := openCall{frame: ev.Frame, call: agentsvc.ToolCall{ID: ev.Result.Call, Name: ev.Result.Name}}
	i := slices.IndexFunc(e.calls, func(open openCall) bool { return open.frame == ev.Frame && open.call.ID == ev.Result.Call })
	if i >= 0 {
		c = e.calls[i]
		e.calls = slices.Delete(e.calls, i, i+1)
	}
	status := statusCompleted
	if ev.Result.Failed {
		status = statusFailed
	}
	return e.addCall(c, status)
}

// addCall adds the item of a tool call with its last status.
func (e *responseEncoder) addCall(c openCall, status string) stream.Bodies {
	index := len(e.body.Output)
	item := callItem{
		ID: fmt.Sprintf("mcp_%s_%d", strings.TrimPrefix(e.body.ID, responsePrefix), index), Type: "mcp_call", Status: statusInProgress, ServerLabel: e.serverLabel(c.frame), Name: c.call.Name,
		Arguments: argumentsText(c.call), ApprovalRequestID: c.approval,
	}
	head := func(name string) callEvent {
		return callEvent{eventHead: e.newHead("response." + name), ItemID: item.ID, OutputIndex: index}
	}
	out := stream.Bodies{e.addItem(item), head("mcp_call.in_progress")}
	arguments := head("mcp_call_arguments.done")
	arguments.Arguments = &item.Arguments
	out = append(out, arguments)
	item.Status = status
	switch text := "the call has failed"; status {
	case statusCompleted:
		out = append(out, head("mcp_call.completed"))
	case statusFailed:
		item.Error = &text
		out = append(out, head("mcp_call.failed"))
	}
	return append(out, e.setItem(index, item))
}

// serverLabel returns the label of the agent that calls a tool: the agent's name, or the path of a nested one.
func (e *responseEncoder) serverLabel(frame string) string {
	if frame == "" {
		return e.body.Model
	}
	return frame
}

// end ends the response with the status that ends the turn.
func (e *responseEncoder) end(ev agentsvc.Event) (out stream.Bodies) {
	st := *ev.Status
	e.ended, e.state = true, st.State
	itemStatus, failure := statusCompleted, newTaskFailure(agentsvc.Task{ID: ev.Task, Status: st})
	name := "response.completed"
	e.body.Status = statusCompleted
	switch {
	case failure != nil:
		name, itemStatus = "response.failed", statusIncomplete
		if e.body.Status = statusFailed; st.State == agentsvc.Cancelled {
			e.body.Status = statusCancelled
		}
		details := failure.toErrorBody(e.requestID).Error
		e.body.Error = &responseError{details.Code, details.Message, details.Details}
	case st.State == agentsvc.Rejected:
		name, e.body.Status = "response.incomplete", statusIncomplete
		e.body.IncompleteDetails = &incompleteDetails{finishContentFilter}
	}
	if failure == nil && st.Message != nil {
		out = e.endMessage(*st.Message, statusCompleted)
	}
	for len(e.messages) > 0 {
		out = append(out, e.endItem(e.messages[0], itemStatus)...)
	}
	out = append(out, e.addOpenCalls(ev)...)
	if u := newUsage(st.Message); u.Total > 0 {
		e.body.Usage = &responseUsage{Input: u.Prompt, InputDetails: u.PromptDetails, Output: u.Completion, OutputDetails: u.Details, Total: u.Total}
	}
	return append(out, e.newLifecycle(name))
}

// resume makes a response whose task waited accept the events with which the task goes on.
func (e *responseEncoder) resume() {
	if e.ended {
		e.ended, e.body.Status, e.body.Usage = false, statusInProgress, nil
	}
}

// addOpenCalls adds the items of the calls without a result: an approval request for one that waits for a decision, an
// incomplete call for any other.
func (e *responseEncoder) addOpenCalls(ev agentsvc.Event) (out stream.Bodies) {
	approvals := openApprovals(*ev.Status)
	for _, c := range e.calls {
		waits := slices.ContainsFunc(approvals, func(a agentsvc.Approval) bool { return a.Frame == c.frame && a.Call.ID == c.call.ID })
		if !waits {
			out = append(out, e.addCall(c, statusIncomplete)...)
		}
	}
	e.calls = nil
	for _, a := range approvals {
		item := approvalItem{newApprovalID(ev.Task, a.Call.ID), approvalFunction, e.serverLabel(a.Frame), a.Call.Name, argumentsText(a.Call)}
		// Where one of several calls was decided, the request for the others is repeated.
		if !slices.Contains(e.body.Output, any(item)) {
			index := len(e.body.Output)
			out = append(out, e.addItem(item), e.setItem(index, item))
		}
	}
	return out
}

// addItem appends an item to the output and returns the event for it.
func (e *responseEncoder) addItem(item any) itemEvent {
	e.body.Output = append(e.body.Output, item)
	return itemEvent{e.newHead("response.output_item.added"), len(e.body.Output) - 1, item}
}

// setItem replaces an item by its last form and returns the event for it.
func (e *responseEncoder) setItem(index int, item any) itemEvent {
	e.body.Output[index] = item
	return itemEvent{e.newHead("response.output_item.done"), index, item}
}

// newHead returns the head of the next event of the stream.
func (e *responseEncoder) newHead(name string) eventHead {
	e.sequence++
	return eventHead{name, e.sequence - 1}
}

// newLifecycle returns an event with the whole response.
func (e *responseEncoder) newLifecycle(name string) lifecycleEvent {
	return lifecycleEvent{e.newHead(name), e.body}
}

// encodeStreamError returns the body of an error in the middle of a stream.
func (e *responseEncoder) encodeStreamError(err error) any {
	_, body := encodeError(apierror.NewFault(e.requestID, err))
	record := body.(errorBody).Error
	return streamErrorEvent{e.newHead("error"), record.Code, record.Message, record.Param, record}
}

// writeTimeout answers a call that has waited as long as it may. The response can be read under its id.
func (e *responseEncoder) writeTimeout(w http.ResponseWriter, id agentsvc.TaskID) error {
	failure := newTaskFailure(agentsvc.Task{ID: id, Status: agentsvc.Status{State: agentsvc.Working}})
	body := failure.toErrorBody(e.requestID)
	body.Error.Details["response_id"] = e.body.ID
	w.Header().Set("X-Should-Retry", "false")
	return response.WriteJSON(w, failure.status, body)
}

func newOutputText(text string) outputText {
	return outputText{"output_text", text, []struct{}{}, []struct{}{}}
}

// argumentsText returns the arguments of a call as JSON text.
func argumentsText(c agentsvc.ToolCall) string {
	if len(c.Arguments) == 0 {
		return "{}"
	}
	return string(c.Arguments)
}
