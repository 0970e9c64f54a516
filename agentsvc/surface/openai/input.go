package openai

import (
	"encoding/json"
	"fmt"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/decode"
)

// previousKey is the name under which a message's metadata has the response that it continues, so that the response can
// say it when it is read later.
const previousKey = "previous_response_id"

// toDomain returns the request as a message to its agent, or an error with [agentsvc.CodeInvalid] that names the member
// that is wrong. The last item must be a message of the user, or decisions end the input. Whom the message continues is
// for continuePrevious to set.
func (r *responseRequest) toDomain() (agentsvc.Message, error) {
	var m agentsvc.Message
	if err := r.checkSupported(); err != nil {
		return m, err
	}
	items, err := r.items()
	if err != nil {
		return m, err
	}
	if m, ok, err := r.toDecisions(items); ok || err != nil {
		return m, err
	}
	c := conversation{name: "input"}
	if r.Instructions != "" {
		c.messages = append(c.messages, agentsvc.Message{Role: agentsvc.RoleUser, Parts: []agentsvc.Part{agentsvc.TextPart(r.Instructions)}})
	}
	for i, in := range items {
		if err := c.add(in.toDomain(fmt.Sprintf("input[%d]", i))); err != nil {
			return m, err
		}
	}
	if !items[len(items)-1].isUserMessage() {
		return m, agentsvc.NewInvalidError("input", "must end with a message whose role is user: what the agent is asked")
	}
	m = c.toMessage()
	if err := r.clientFields.addTo(&m); err != nil {
		return m, err
	}
	setMetadata(&m, previousKey, r.PreviousResponseID)
	return m, nil
}

// items returns the items of the input. A text is one message of the user.
func (r *responseRequest) items() ([]inputItem, error) {
	var text string
	if len(r.Input) > 0 && json.Unmarshal(r.Input, &text) == nil && string(r.Input) != "null" {
		return []inputItem{{Role: "user", Content: r.Input}}, nil
	}
	var list []decode.AliasedJSON
	if err := json.Unmarshal(r.Input, &list); len(r.Input) > 0 && err != nil {
		return nil, agentsvc.NewInvalidError("input", "must be a text or a list of items")
	}
	if n := len(list); n == 0 || n > maxMessages {
		return nil, agentsvc.NewInvalidError("input", "must be a text or have between 1 and %d items", maxMessages)
	}
	items := make([]inputItem, len(list))
	for i, raw := range list {
		if json.Unmarshal(raw, &items[i]) != nil {
			return nil, agentsvc.NewInvalidError(fmt.Sprintf("input[%d]", i), "must be an object whose type and role are texts")
		}
	}
	return items, nil
}

// toDecisions returns the message with the decisions that follow the last item of the agent, and false if there are none.
// Decisions before it are past: the task has gone on after them.
func (r *responseRequest) toDecisions(items []inputItem) (m agentsvc.Message, ok bool, err error) {
	first := len(items)
	for first > 0 && (items[first-1].isUserMessage() || items[first-1].Type == approvalResponse) {
		first--
	}
	var decisions []decision
	other := -1
	for i, in := range items[first:] {
		switch {
		case in.Type != approvalResponse:
			other = first + i
		case in.Approve == nil:
			return m, false, agentsvc.NewInvalidError(fmt.Sprintf("input[%d].approve", first+i), "is missing: true or false")
		default:
			decisions = append(decisions, decision{in.ApprovalRequestID, in.Approve, in.Reason})
		}
	}
	switch {
	case len(decisions) == 0:
		return m, false, nil
	case other >= 0:
		return m, false, newMixedError(fmt.Sprintf("input[%d]", other))
	}
	m, err = newDecisionMessage(decisions, "approval_request_id", func(i int) string { return fmt.Sprintf("input[%d]", first+i) })
	if id, _, _ := parseResponseID(r.PreviousResponseID); err == nil && r.PreviousResponseID != "" && id != m.Task {
		err = agentsvc.NewInvalidError(previousKey, "has not asked for this decision")
	}
	return m, true, err
}

// checkSupported refuses options that would require another kind of answer.
func (r *responseRequest) checkSupported() error {
	refused := func(field, why string) error { return agentsvc.NewInvalidError(field, "must be left out: %s", why) }
	switch {
	case len(r.Tools) > 0:
		return refused("tools", "an agent has tools of its own")
	case r.ToolChoice != nil && r.ToolChoice != "auto":
		return refused("tool_choice", "an agent chooses its tools itself")
	case r.MaxToolCalls != nil:
		return refused("max_tool_calls", "the agent's configuration bounds its calls")
	case r.Store != nil && !*r.Store:
		return agentsvc.NewInvalidError("store", "must be true: every response is a task, which is kept for as long as the app's retention says")
	case len(r.Include) > 0:
		return refused("include", "a response has nothing more to show")
	case r.Conversation != nil:
		return refused("conversation", "continue a conversation with previous_response_id")
	case r.Prompt != nil:
		return refused("prompt", "there are no stored prompts, the agent has instructions of its own")
	case r.TopLogprobs != 0:
		return refused("top_logprobs", "there are none")
	case r.Text.Format.Type != "" && r.Text.Format.Type != "text":
		return refused("text.format", "the form of an answer is the agent's own")
	}
	return nil
}

// approvalResponse is the type of an item with a decision.
const approvalResponse = "mcp_approval_response"

// isUserMessage reports whether i is a message that is not the agent's.
func (i *inputItem) isUserMessage() bool {
	return (i.Type == "" || i.Type == "message") && i.Role != "assistant"
}

// toDomain returns i as a domain message; at is its path for errors. What a response has shown of the agent's steps and
// the client sends back is left out, as a message without parts: only the server vouches for calls and results.
func (i *inputItem) toDomain(at string) (m agentsvc.Message, err error) {
	switch i.Type {
	case "", "message":
	case "mcp_call", "mcp_list_tools", "reasoning", approvalFunction, approvalResponse:
		return m, nil
	case "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output":
		return m, agentsvc.NewInvalidError(at+".type", "must not be %s: an agent has tools of its own", i.Type)
	default:
		return m, agentsvc.NewInvalidError(at+".type", "unknown type %.40q: message, %s, or an item of an earlier output", i.Type, approvalResponse)
	}
	if m.Role, err = toRole(at, i.Role); err != nil {
		return m, err
	}
	if len(i.Content) == 0 || string(i.Content) == "null" {
		return m, agentsvc.NewInvalidError(at+".content", "is missing")
	}
	m.Parts, err = decodeContent(at+".content", i.Content, (*inputPart).toDomain)
	return m, err
}

// toDomain returns p as a domain part; at is its path for errors.
func (p *inputPart) toDomain(at string) (agentsvc.Part, error) {
	if p.FileID != "" {
		return agentsvc.Part{}, agentsvc.NewInvalidError(at+".file_id", "must be left out: there are no stored files, send its data or its URL")
	}
	switch p.Type {
	case "input_text", "output_text":
		if p.Text == nil {
			return agentsvc.Part{}, agentsvc.NewInvalidError(at+".text", "is missing")
		}
		return agentsvc.TextPart(*p.Text), nil
	case "refusal":
		return agentsvc.TextPart(p.Refusal), nil
	case "input_image":
		return newFilePart(at, "image_url", p.ImageURL, "image/jpeg", "")
	case "input_file":
		if p.FileURL != "" {
			return newFilePart(at, "file_url", p.FileURL, "application/octet-stream", p.FileName)
		}
		return newFilePart(at, "file_data", p.FileData, "application/octet-stream", p.FileName)
	case "input_audio":
		return p.InputAudio.toDomain(at + ".input_audio")
	}
	return agentsvc.Part{}, agentsvc.NewInvalidError(at+".type", "unknown type %.40q: input_text, input_image, input_file, input_audio or output_text", p.Type)
}
