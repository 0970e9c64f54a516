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

// DecisionInput is what a human decides about a tool call: [agentsvc.OutcomeApproved] or [agentsvc.OutcomeRejected]. Call may be empty where
// one alone waits. Arguments, where not nil, are what an approved call is to run with instead. With [agentsvc.OutcomeSupplied] it
// brings the credential that Tool waits for, and has only that and Value.
type DecisionInput struct {
	Call      agentsvc.CallID
	Outcome   agentsvc.DecisionOutcome
	Arguments json.RawMessage
	Comment   string
	Tool      string
	Value     string
}

// HasDecision reports whether m brings a decision, or something that is to be one.
func HasDecision(m agentsvc.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p agentsvc.Part) bool {
		_, kind := readDecisionPart(p)
		return kind == approvalPartType
	})
}

// HasCredentials reports whether rulings bring credentials. They do not bring decisions as well.
func HasCredentials(decisions []DecisionInput) bool {
	return len(decisions) > 0 && decisions[0].Outcome == agentsvc.OutcomeSupplied
}

// approvalPartType and credentialPartType are what data parts are called that ask for a decision or a credential, or bring one.
const (
	approvalPartType   = "tool_approval"
	credentialPartType = "tool_credential"
)

// ParseDecisions returns the decisions or credentials that a message brings in its data parts, none if it is an ordinary message.
// It takes the values of credentials out of the message, whatever else it finds. Text beside decisions is their comment,
// anything else is refused with an [agentsvc.InvalidError].
func ParseDecisions(m *agentsvc.Message) ([]DecisionInput, error) {
	received := m.Parts
	m.Parts = redactCredentials(m.Parts)
	var decisions []DecisionInput
	var comment []string // texts may be large: they are copied only where there is something they comment on
	otherPart := -1
	for i, p := range received {
		switch value, kind := readDecisionPart(p); {
		case kind != "":
			r, err := parseDecision(fmt.Sprintf("message.parts[%d].data.", i), kind, value)
			if err == nil && len(decisions) > 0 && (r.Outcome == agentsvc.OutcomeSupplied) != HasCredentials(decisions) {
				err = agentsvc.NewInvalidError(fmt.Sprintf("message.parts[%d]", i), "cannot stand beside the part before it: credentials and decisions come in messages of their own")
			}
			if err != nil {
				return nil, err
			}
			decisions = append(decisions, r)
		case p.File != nil || p.Data != nil:
			otherPart = i
		default:
			comment = append(comment, p.Text)
		}
	}
	switch {
	case len(decisions) == 0:
		return nil, nil
	case otherPart >= 0:
		return nil, agentsvc.NewInvalidError(fmt.Sprintf("message.parts[%d]", otherPart), "cannot stand beside a decision or a credential: only text can")
	case m.Task == "":
		return nil, agentsvc.NewInvalidError("message.task_id", "is missing: the task whose tool call waits")
	case HasCredentials(decisions):
		return decisions, nil
	}
	for i := range decisions {
		decisions[i].Comment = strings.Join(comment, "")
	}
	return decisions, nil
}

// redactCredentials returns parts without the values of credentials.
func redactCredentials(parts []agentsvc.Part) []agentsvc.Part {
	parts = slices.Clone(parts)
	for i, p := range parts {
		if value, kind := readDecisionPart(p); kind == credentialPartType {
			value = maps.Clone(value)
			delete(value, "value")
			parts[i].Data = &agentsvc.Data{MediaType: p.Data.MediaType, Value: value}
		}
	}
	return parts
}

// readDecisionPart returns what a part holds that brings a decision or a credential, and which of the two, "" for neither.
func readDecisionPart(p agentsvc.Part) (value map[string]any, kind string) {
	if p.Data == nil {
		return nil, ""
	}
	value, _ = p.Data.Value.(map[string]any)
	switch value["type"] {
	case approvalPartType:
		return value, approvalPartType
	case credentialPartType:
		return value, credentialPartType
	}
	return nil, ""
}

func parseDecision(at, kind string, value map[string]any) (DecisionInput, error) {
	if kind == credentialPartType {
		return parseCredential(at, value)
	}
	call, named := value["call_id"].(string)
	verdict, _ := value["decision"].(string)
	r := DecisionInput{Call: agentsvc.CallID(call), Outcome: agentsvc.DecisionOutcome(verdict)}
	if value["call_id"] != nil && !named {
		return r, agentsvc.NewInvalidError(at+"call_id", "must be the id of a tool call")
	}
	if r.Outcome != agentsvc.OutcomeApproved && r.Outcome != agentsvc.OutcomeRejected {
		return r, agentsvc.NewInvalidError(at+"decision", `must be "approve" or "reject"`)
	}
	if arguments := value["arguments"]; arguments != nil {
		raw, err := json.Marshal(arguments)
		if err != nil {
			return r, agentsvc.NewInvalidError(at+"arguments", "must be a JSON object")
		}
		r.Arguments = raw
	}
	return r, nil
}

// parseCredential reads a credential. What is wrong with it is said without quoting it.
func parseCredential(at string, value map[string]any) (DecisionInput, error) {
	tool, _ := value["tool"].(string)
	secret, _ := value["value"].(string)
	if tool == "" {
		return DecisionInput{}, agentsvc.NewInvalidError(at+"tool", "is missing: the tool that waits for a credential")
	}
	return DecisionInput{Outcome: agentsvc.OutcomeSupplied, Tool: tool, Value: secret}, store.CheckCredential(at+"value", secret)
}

// NewQuestion is the message by which a task asks for decisions and credentials: in words, and as data parts that can be
// answered in kind. Calls that need the same credential ask for it once.
func NewQuestion(id agentsvc.TaskID, approvals []agentsvc.Approval) agentsvc.Message {
	m := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent}
	var prompts []string
	var parts []agentsvc.Part
	requested := map[agentsvc.Credential]bool{}
	for _, a := range approvals {
		if requested[a.Credential] {
			continue
		}
		requested[a.Credential] = !a.NeedsDecision()
		prompts = append(prompts, a.Prompt)
		parts = append(parts, agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: describeApproval(a)}})
	}
	m.Parts = append([]agentsvc.Part{agentsvc.TextPart(strings.Join(prompts, "\n"))}, parts...)
	return m
}

// describeApproval is what an approval asks for, as a program reads it.
func describeApproval(a agentsvc.Approval) map[string]any {
	if isBudgetApproval(a) {
		var w BudgetWait
		_ = json.Unmarshal(a.Call.Arguments, &w) // it was made by us
		return map[string]any{"type": budgetPartType, "budget": w.Budget, "scope": w.Scope, "prompt": a.Prompt}
	}
	if !a.NeedsDecision() {
		c := a.Credential
		return map[string]any{"type": credentialPartType, "tool": c.Tool, "header": c.Header, "server": c.Server, "prompt": a.Prompt}
	}
	var arguments any = map[string]any{}
	if len(a.Call.Arguments) > 0 {
		_ = json.Unmarshal(a.Call.Arguments, &arguments) // they fit the tool's schema, so they are JSON
	}
	value := map[string]any{
		"type": approvalPartType, "call_id": string(a.Call.ID), "tool": a.Call.Name, "arguments": arguments, "prompt": a.Prompt, "kind": string(a.Kind),
	}
	if a.Frame != "" {
		value["agent"] = a.Frame
	}
	return value
}

// findApproval returns which of the open approvals a decision is about.
func findApproval(open []agentsvc.Approval, call agentsvc.CallID) (agentsvc.Approval, error) {
	if call != "" {
		i := slices.IndexFunc(open, func(a agentsvc.Approval) bool { return a.Call.ID == call })
		switch {
		case i < 0:
			return agentsvc.Approval{}, agentsvc.ErrNotFound
		case isBudgetApproval(open[i]):
			return open[i], agentsvc.NewInvalidError("call_id", "%s waits for a budget: nobody decides about that", call)
		case !open[i].NeedsDecision():
			return open[i], agentsvc.NewInvalidError("call_id", "%s waits for a credential of the task's owner: nobody decides about that", call)
		}
		return open[i], nil
	}
	switch ids := describeDecidable(open); len(ids) {
	case 0:
		return agentsvc.Approval{}, agentsvc.ErrNotFound
	case 1:
		return open[slices.IndexFunc(open, agentsvc.Approval.NeedsDecision)], nil
	default:
		return agentsvc.Approval{}, agentsvc.NewInvalidError("call_id", "is missing, and %d tool calls wait: %s", len(ids), strings.Join(ids, ", "))
	}
}

// describeDecidable names the calls of open that wait for a decision.
func describeDecidable(open []agentsvc.Approval) (names []string) {
	for _, a := range open {
		if a.NeedsDecision() {
			names = append(names, fmt.Sprintf("%s (%s)", a.Call.ID, a.Call.Name))
		}
	}
	return names
}

// findCredentialApprovals returns which of the open approvals, of all that there were, wait for the credential of a tool.
func findCredentialApprovals(all, open []agentsvc.Approval, tool string) (about []agentsvc.Approval, err error) {
	var others []string
	for _, a := range open {
		switch {
		case a.NeedsDecision(), isBudgetApproval(a):
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
		return nil, agentsvc.NewInvalidError("tool", "%s is named twice", tool)
	case len(others) > 0:
		return nil, agentsvc.NewInvalidError("tool", "the task waits for a credential for another tool: %s", strings.Join(others, ", "))
	}
	return nil, agentsvc.ErrNoOpenDecision
}
