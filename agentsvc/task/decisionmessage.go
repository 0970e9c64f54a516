package task

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/store/vault"
)

// DecisionInput is a human's decision about a tool call, or a credential, as a protocol decoded it.
type DecisionInput struct {
	// Call may be empty where exactly one call waits for a decision.
	Call    agentsvc.CallID
	Outcome agentsvc.DecisionOutcome
	// Arguments, if not nil, replace those of an approved call.
	Arguments json.RawMessage
	Comment   string
	// Tool and Value are set, and nothing else but Outcome, with [agentsvc.OutcomeSupplied]: the tool that waits for
	// a credential, and the credential. Value is a secret: no error and no log may quote it.
	Tool  string
	Value string
}

// HasDecision reports whether m has a data part of type tool_approval, also a malformed one. Admission uses it to
// require the permission to decide before the message is parsed.
func HasDecision(m agentsvc.Message) bool {
	return slices.ContainsFunc(m.Parts, func(p agentsvc.Part) bool {
		_, kind := readDecisionPart(p)
		return kind == approvalPartType
	})
}

// hasCredentials reports whether the inputs are credentials. ParseDecisions never mixes them with decisions.
func hasCredentials(decisions []DecisionInput) bool {
	return len(decisions) > 0 && decisions[0].Outcome == agentsvc.OutcomeSupplied
}

// Types of data parts, both in requests of a task and in answers to them (docs/approvals.md, docs/credentials.md).
const (
	approvalPartType   = "tool_approval"
	credentialPartType = "tool_credential"
)

// ParseDecisions returns the decisions or credentials in the data parts of a message, none for an ordinary message.
// It removes the values of credentials from m, even when it returns an error, so that they cannot be stored or logged
// with the message. Text parts next to decisions are the comment of those that have none of their own. Any other part
// next to them, and a mix of decisions and credentials, is an error with [agentsvc.CodeInvalid].
func ParseDecisions(m *agentsvc.Message) ([]DecisionInput, error) {
	received := m.Parts
	m.Parts = redactCredentials(m.Parts)
	var decisions []DecisionInput
	var comment []string // joined only if there are decisions: the texts of an ordinary message may be large
	otherPart := -1
	for i, p := range received {
		switch value, kind := readDecisionPart(p); {
		case kind != "":
			r, err := parseDecision(fmt.Sprintf("message.parts[%d].data.", i), kind, value)
			if err == nil && len(decisions) > 0 && (r.Outcome == agentsvc.OutcomeSupplied) != hasCredentials(decisions) {
				err = agentsvc.NewInvalidError(fmt.Sprintf("message.parts[%d]", i), "cannot be combined with the part before it: send credentials and decisions in separate messages")
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
		return nil, agentsvc.NewInvalidError(fmt.Sprintf("message.parts[%d]", otherPart), "cannot be combined with a decision or a credential: only text can")
	case m.Task == "":
		return nil, agentsvc.NewInvalidError("message.task_id", "is missing: the task whose tool call waits")
	case hasCredentials(decisions):
		return decisions, nil
	}
	for i := range decisions {
		decisions[i].Comment = cmp.Or(decisions[i].Comment, strings.Join(comment, ""))
	}
	return decisions, nil
}

// redactCredentials returns a copy of parts without the values of credentials.
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

// readDecisionPart returns the value and the type of a part that brings a decision or a credential; kind is "" for
// any other part.
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

// parseDecision decodes one decision part; at is the path prefix for its errors.
func parseDecision(at, kind string, value map[string]any) (DecisionInput, error) {
	if kind == credentialPartType {
		return parseCredential(at, value)
	}
	call, named := value["call_id"].(string)
	verdict, _ := value["decision"].(string)
	comment, isText := value["comment"].(string)
	r := DecisionInput{Call: agentsvc.CallID(call), Outcome: agentsvc.DecisionOutcome(verdict), Comment: comment}
	if value["call_id"] != nil && !named {
		return r, agentsvc.NewInvalidError(at+"call_id", "must be the id of a tool call")
	}
	if value["comment"] != nil && !isText {
		return r, agentsvc.NewInvalidError(at+"comment", "must be a text")
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

// parseCredential decodes one credential part. Its errors do not quote the value.
func parseCredential(at string, value map[string]any) (DecisionInput, error) {
	tool, _ := value["tool"].(string)
	secret, _ := value["value"].(string)
	if tool == "" {
		return DecisionInput{}, agentsvc.NewInvalidError(at+"tool", "is missing: the tool that waits for a credential")
	}
	return DecisionInput{Outcome: agentsvc.OutcomeSupplied, Tool: tool, Value: secret}, vault.CheckCredential(at+"value", secret)
}

// NewDecisionPart returns the data part of a message that decides about a tool call of the task that the message names.
func NewDecisionPart(d DecisionInput) agentsvc.Part {
	value := map[string]any{"type": approvalPartType, "call_id": string(d.Call), "decision": string(d.Outcome), "comment": d.Comment}
	return agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: value}}
}

// NewQuestion returns the message with which a task requests decisions and credentials: one text part for humans, and
// one data part for each request, which a client can answer with a part of the same type. Calls that need the same
// credential share one request.
func NewQuestion(id agentsvc.TaskID, approvals []agentsvc.Approval) agentsvc.Message {
	m := agentsvc.Message{ID: agentsvc.MessageID(agentsvc.NewID()), Task: id, Role: agentsvc.RoleAgent}
	var prompts []string
	var parts []agentsvc.Part
	requested := map[agentsvc.Credential]bool{}
	for _, a := range approvals {
		if requested[a.Credential] {
			continue
		}
		// Decisions have a zero Credential, which must not count as requested.
		requested[a.Credential] = !a.NeedsDecision()
		prompts = append(prompts, a.Prompt)
		parts = append(parts, agentsvc.Part{Data: &agentsvc.Data{MediaType: "application/json", Value: describeApproval(a)}})
	}
	m.Parts = append([]agentsvc.Part{agentsvc.TextPart(strings.Join(prompts, "\n"))}, parts...)
	return m
}

// ReadQuestion returns the tool calls whose decisions a message of [NewQuestion] requests, with their prompts and the
// paths of their agents. Other messages request none.
func ReadQuestion(m agentsvc.Message) (approvals []agentsvc.Approval) {
	for _, p := range m.Parts {
		value, kind := readDecisionPart(p)
		call, _ := value["call_id"].(string)
		if kind != approvalPartType || call == "" {
			continue
		}
		a := agentsvc.Approval{Call: agentsvc.ToolCall{ID: agentsvc.CallID(call)}}
		a.Call.Name, _ = value["tool"].(string)
		a.Call.Arguments, _ = json.Marshal(value["arguments"]) // decoded JSON
		a.Prompt, _ = value["prompt"].(string)
		a.Frame, _ = value["agent"].(string)
		approvals = append(approvals, a)
	}
	return approvals
}

// describeApproval returns the data part of a request.
func describeApproval(a agentsvc.Approval) map[string]any {
	if isBudgetApproval(a) {
		var w BudgetWait
		_ = json.Unmarshal(a.Call.Arguments, &w) // pauseForBudget encoded it
		return map[string]any{"type": budgetPartType, "budget": w.Budget, "scope": w.Scope, "prompt": a.Prompt}
	}
	if !a.NeedsDecision() {
		c := a.Credential
		return map[string]any{"type": credentialPartType, "tool": c.Tool, "header": c.Header, "server": c.Server, "prompt": a.Prompt}
	}
	var arguments any = map[string]any{}
	if len(a.Call.Arguments) > 0 {
		_ = json.Unmarshal(a.Call.Arguments, &arguments) // they were validated against the tool's schema, so they are JSON
	}
	value := map[string]any{
		"type": approvalPartType, "call_id": string(a.Call.ID), "tool": a.Call.Name, "arguments": arguments, "prompt": a.Prompt, "kind": string(a.Kind),
	}
	if a.Frame != "" {
		value["agent"] = a.Frame
	}
	return value
}

// findApproval returns the open approval that a decision is about. Without a call id there must be exactly one that
// waits for a decision.
func findApproval(open []agentsvc.Approval, call agentsvc.CallID) (agentsvc.Approval, error) {
	if call != "" {
		i := slices.IndexFunc(open, func(a agentsvc.Approval) bool { return a.Call.ID == call })
		switch {
		case i < 0:
			return agentsvc.Approval{}, agentsvc.ErrNotFound
		case isBudgetApproval(open[i]):
			return open[i], agentsvc.NewInvalidError("call_id", "%s waits for a budget and needs no decision", call)
		case !open[i].NeedsDecision():
			return open[i], agentsvc.NewInvalidError("call_id", "%s waits for a credential of the task's owner and needs no decision", call)
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

// describeDecidable returns id and name of the open calls that wait for a decision, for error messages.
func describeDecidable(open []agentsvc.Approval) (names []string) {
	for _, a := range open {
		if a.NeedsDecision() {
			names = append(names, fmt.Sprintf("%s (%s)", a.Call.ID, a.Call.Name))
		}
	}
	return names
}

// findCredentialApprovals returns the open approvals that wait for the credential of a tool. all includes those that
// earlier inputs of the same batch have settled, to distinguish a repeated input from a wrong one.
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
