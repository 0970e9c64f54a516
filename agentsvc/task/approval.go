package task

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"stoa/agentsvc"
)

// Ruling is what a human decides about a tool call: [agentsvc.Approve] or [agentsvc.Reject]. Call may be empty where
// one alone waits. Arguments, where not nil, are what an approved call is to run with instead.
type Ruling struct {
	Call      agentsvc.CallID
	Verdict   agentsvc.Verdict
	Arguments json.RawMessage
	Comment   string
}

// approvalType is what a data part is called that asks for a decision or brings one.
const approvalType = "tool_approval"

// Rulings returns the decisions that a message brings in its data parts, none if it is an ordinary message. Text beside
// them is their comment, anything else is refused with an [agentsvc.InvalidError].
func Rulings(m agentsvc.Message) ([]Ruling, error) {
	var rulings []Ruling
	var comment strings.Builder
	stranger := -1
	for i, p := range m.Parts {
		switch value, ok := decision(p); {
		case ok:
			r, err := ruling(fmt.Sprintf("message.parts[%d].data.", i), value)
			if err != nil {
				return nil, err
			}
			rulings = append(rulings, r)
		case p.File != nil || p.Data != nil:
			stranger = i
		default:
			comment.WriteString(p.Text)
		}
	}
	switch {
	case len(rulings) == 0:
		return nil, nil
	case stranger >= 0:
		return nil, agentsvc.Invalid(fmt.Sprintf("message.parts[%d]", stranger), "cannot stand beside a decision: only text can, as its comment")
	case m.Task == "":
		return nil, agentsvc.Invalid("message.task_id", "is missing: the task whose tool call is decided on")
	}
	for i := range rulings {
		rulings[i].Comment = comment.String()
	}
	return rulings, nil
}

// decision returns what a part holds that brings a decision, and whether it does.
func decision(p agentsvc.Part) (map[string]any, bool) {
	if p.Data == nil {
		return nil, false
	}
	value, _ := p.Data.Value.(map[string]any)
	return value, value["type"] == approvalType
}

func ruling(at string, value map[string]any) (Ruling, error) {
	call, named := value["call_id"].(string)
	verdict, _ := value["decision"].(string)
	r := Ruling{Call: agentsvc.CallID(call), Verdict: agentsvc.Verdict(verdict)}
	if value["call_id"] != nil && !named {
		return r, agentsvc.Invalid(at+"call_id", "must be the id of a tool call")
	}
	if r.Verdict != agentsvc.Approve && r.Verdict != agentsvc.Reject {
		return r, agentsvc.Invalid(at+"decision", `must be "approve" or "reject"`)
	}
	if arguments := value["arguments"]; arguments != nil {
		raw, err := json.Marshal(arguments)
		if err != nil {
			return r, agentsvc.Invalid(at+"arguments", "must be a JSON object")
		}
		r.Arguments = raw
	}
	return r, nil
}

// Question is the message by which a task asks for decisions: in words, and as data parts that can be answered in kind.
func Question(id agentsvc.TaskID, approvals []agentsvc.Approval) agentsvc.Message {
	m := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent}
	prompts := make([]string, len(approvals))
	for i, a := range approvals {
		prompts[i] = a.Prompt
	}
	m.Parts = append(m.Parts, agentsvc.TextPart(strings.Join(prompts, "\n")))
	for _, a := range approvals {
		var arguments any = map[string]any{}
		if len(a.Call.Arguments) > 0 {
			_ = json.Unmarshal(a.Call.Arguments, &arguments) // they fit the tool's schema, so they are JSON
		}
		value := map[string]any{
			"type": approvalType, "call_id": string(a.Call.ID), "tool": a.Call.Name, "arguments": arguments, "prompt": a.Prompt, "kind": string(a.Kind),
		}
		if a.Frame != "" {
			value["agent"] = a.Frame
		}
		m.Parts = append(m.Parts, agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: value}})
	}
	return m
}

// choose returns which of the open approvals a ruling is about.
func choose(open []agentsvc.Approval, call agentsvc.CallID) (int, error) {
	if call == "" && len(open) > 1 {
		ids := make([]string, len(open))
		for i, a := range open {
			ids[i] = fmt.Sprintf("%s (%s)", a.Call.ID, a.Call.Name)
		}
		return 0, agentsvc.Invalid("call_id", "is missing, and %d tool calls wait: %s", len(open), strings.Join(ids, ", "))
	}
	i := slices.IndexFunc(open, func(a agentsvc.Approval) bool { return call == "" || a.Call.ID == call })
	if i < 0 {
		return 0, agentsvc.ErrNotFound
	}
	return i, nil
}
