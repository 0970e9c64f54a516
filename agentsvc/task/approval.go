package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// Ruling is what a human decides about a tool call: [agentsvc.Approve] or [agentsvc.Reject]. Call may be empty where
// one alone waits. Arguments, where not nil, are what an approved call is to run with instead. With [agentsvc.Supply] it
// brings the credential that Tool waits for, and has only that and Value.
type Ruling struct {
	Call      agentsvc.CallID
	Verdict   agentsvc.Verdict
	Arguments json.RawMessage
	Comment   string
	Tool      string
	Value     string
}

// Decides reports whether m brings a decision, or something that is to be one.
func Decides(m agentsvc.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p agentsvc.Part) bool {
		_, kind := answer(p)
		return kind == approvalType
	})
}

// Supplies reports whether rulings bring credentials. They do not bring decisions as well.
func Supplies(rulings []Ruling) bool {
	return len(rulings) > 0 && rulings[0].Verdict == agentsvc.Supply
}

// approvalType and credentialType are what data parts are called that ask for a decision or a credential, or bring one.
const (
	approvalType   = "tool_approval"
	credentialType = "tool_credential"
)

// Rulings returns the decisions or credentials that a message brings in its data parts, none if it is an ordinary message.
// It takes the values of credentials out of the message, whatever else it finds. Text beside decisions is their comment,
// anything else is refused with an [agentsvc.InvalidError].
func Rulings(m *agentsvc.Message) ([]Ruling, error) {
	taken := m.Parts
	m.Parts = blanked(m.Parts)
	var rulings []Ruling
	var comment []string // texts may be large: they are copied only where there is something they comment on
	stranger := -1
	for i, p := range taken {
		switch value, kind := answer(p); {
		case kind != "":
			r, err := ruling(fmt.Sprintf("message.parts[%d].data.", i), kind, value)
			if err == nil && len(rulings) > 0 && (r.Verdict == agentsvc.Supply) != Supplies(rulings) {
				err = agentsvc.Invalid(fmt.Sprintf("message.parts[%d]", i), "cannot stand beside the part before it: credentials and decisions come in messages of their own")
			}
			if err != nil {
				return nil, err
			}
			rulings = append(rulings, r)
		case p.File != nil || p.Data != nil:
			stranger = i
		default:
			comment = append(comment, p.Text)
		}
	}
	switch {
	case len(rulings) == 0:
		return nil, nil
	case stranger >= 0:
		return nil, agentsvc.Invalid(fmt.Sprintf("message.parts[%d]", stranger), "cannot stand beside a decision or a credential: only text can")
	case m.Task == "":
		return nil, agentsvc.Invalid("message.task_id", "is missing: the task whose tool call waits")
	case Supplies(rulings):
		return rulings, nil
	}
	for i := range rulings {
		rulings[i].Comment = strings.Join(comment, "")
	}
	return rulings, nil
}

// blanked returns parts without the values of credentials.
func blanked(parts []agentsvc.Part) []agentsvc.Part {
	parts = slices.Clone(parts)
	for i, p := range parts {
		if value, kind := answer(p); kind == credentialType {
			value = maps.Clone(value)
			delete(value, "value")
			parts[i].Data = &agentsvc.Data{MediaType: p.Data.MediaType, Value: value}
		}
	}
	return parts
}

// answer returns what a part holds that brings a decision or a credential, and which of the two, "" for neither.
func answer(p agentsvc.Part) (value map[string]any, kind string) {
	if p.Data == nil {
		return nil, ""
	}
	value, _ = p.Data.Value.(map[string]any)
	switch value["type"] {
	case approvalType:
		return value, approvalType
	case credentialType:
		return value, credentialType
	}
	return nil, ""
}

func ruling(at, kind string, value map[string]any) (Ruling, error) {
	if kind == credentialType {
		return supply(at, value)
	}
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

// supply reads a credential. What is wrong with it is said without quoting it.
func supply(at string, value map[string]any) (Ruling, error) {
	tool, _ := value["tool"].(string)
	secret, _ := value["value"].(string)
	if tool == "" {
		return Ruling{}, agentsvc.Invalid(at+"tool", "is missing: the tool that waits for a credential")
	}
	return Ruling{Verdict: agentsvc.Supply, Tool: tool, Value: secret}, store.CheckCredential(at+"value", secret)
}

// Question is the message by which a task asks for decisions and credentials: in words, and as data parts that can be
// answered in kind. Calls that need the same credential ask for it once.
func Question(id agentsvc.TaskID, approvals []agentsvc.Approval) agentsvc.Message {
	m := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent}
	var prompts []string
	var parts []agentsvc.Part
	asked := map[agentsvc.Credential]bool{}
	for _, a := range approvals {
		if asked[a.Credential] {
			continue
		}
		asked[a.Credential] = !a.Decidable()
		prompts = append(prompts, a.Prompt)
		parts = append(parts, agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: question(a)}})
	}
	m.Parts = append([]agentsvc.Part{agentsvc.TextPart(strings.Join(prompts, "\n"))}, parts...)
	return m
}

// question is what an approval asks for, as a program reads it.
func question(a agentsvc.Approval) map[string]any {
	if awaits(a) {
		var w BudgetWait
		_ = json.Unmarshal(a.Call.Arguments, &w) // it was made by us
		return map[string]any{"type": budgetType, "budget": w.Budget, "scope": w.Scope, "prompt": a.Prompt}
	}
	if !a.Decidable() {
		c := a.Credential
		return map[string]any{"type": credentialType, "tool": c.Tool, "header": c.Header, "server": c.Server, "prompt": a.Prompt}
	}
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
	return value
}

// choose returns which of the open approvals a decision is about.
func choose(open []agentsvc.Approval, call agentsvc.CallID) (agentsvc.Approval, error) {
	if call != "" {
		i := slices.IndexFunc(open, func(a agentsvc.Approval) bool { return a.Call.ID == call })
		switch {
		case i < 0:
			return agentsvc.Approval{}, agentsvc.ErrNotFound
		case awaits(open[i]):
			return open[i], agentsvc.Invalid("call_id", "%s waits for a budget: nobody decides about that", call)
		case !open[i].Decidable():
			return open[i], agentsvc.Invalid("call_id", "%s waits for a credential of the task's owner: nobody decides about that", call)
		}
		return open[i], nil
	}
	switch ids := decidable(open); len(ids) {
	case 0:
		return agentsvc.Approval{}, agentsvc.ErrNotFound
	case 1:
		return open[slices.IndexFunc(open, agentsvc.Approval.Decidable)], nil
	default:
		return agentsvc.Approval{}, agentsvc.Invalid("call_id", "is missing, and %d tool calls wait: %s", len(ids), strings.Join(ids, ", "))
	}
}

// decidable names the calls of open that wait for a decision.
func decidable(open []agentsvc.Approval) (names []string) {
	for _, a := range open {
		if a.Decidable() {
			names = append(names, fmt.Sprintf("%s (%s)", a.Call.ID, a.Call.Name))
		}
	}
	return names
}

// wanting returns which of the open approvals, of all that there were, wait for the credential of a tool.
func wanting(all, open []agentsvc.Approval, tool string) (about []agentsvc.Approval, err error) {
	var others []string
	for _, a := range open {
		switch {
		case a.Decidable(), awaits(a):
		case a.Credential.Tool == tool:
			about = append(about, a)
		case !slices.Contains(others, a.Credential.Tool):
			others = append(others, a.Credential.Tool)
		}
	}
	switch {
	case len(about) > 0:
		return about, nil
	case slices.ContainsFunc(all, func(a agentsvc.Approval) bool { return a.Credential.Tool == tool }):
		return nil, agentsvc.Invalid("tool", "%s is named twice", tool)
	case len(others) > 0:
		return nil, agentsvc.Invalid("tool", "the task waits for a credential for another tool: %s", strings.Join(others, ", "))
	}
	return nil, agentsvc.ErrDecided
}
