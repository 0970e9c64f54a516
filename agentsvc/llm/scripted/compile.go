package scripted

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
)

// compileRule checks the n-th rule of a script and returns its compiled form. The error joins all mistakes.
func compileRule(n int, r Rule) (compiledRule, error) {
	// {{text}} and {{result}} are known to every rule; compilePattern adds the named groups.
	c := ruleChecker{path: fmt.Sprintf("script[%d]", n), knownPlaceholders: []string{"text", "result"}}
	out := compiledRule{toolName: r.When.ToolResult, items: slices.Clone(r.Then), usage: r.Usage, standalone: r.Standalone}
	c.checkUsage("usage", r.Usage)
	out.text = c.compilePattern("when.text", r.When.Text)
	out.messageID = c.compilePattern("when.message_id", r.When.MessageID)
	if len(r.Then) == 0 {
		c.addError("then", "is empty; say at least what to answer")
	}
	// Items are checked after the conditions, whose groups they may use.
	for i, it := range out.items {
		out.items[i] = c.checkItem(fmt.Sprintf("then[%d]", i), it)
		if it.isTerminal() && i < len(r.Then)-1 {
			c.addError(fmt.Sprintf("then[%d]", i+1), "comes after the answer's end: nothing can follow fail, ask or refuse")
		}
		if r.Standalone && (it.Call != nil || it.Artifact != nil || it.Question != "" || it.Refusal != "") {
			c.addError(fmt.Sprintf("then[%d]", i), "is the work of a task; an answer with reply: message has only text")
		}
	}
	// An answer with calls ends with StopTools, so it cannot also ask or refuse. A failure after a call is an error
	// like any other.
	calls := slices.ContainsFunc(r.Then, func(it Item) bool { return it.Call != nil })
	// An answer with calls ends with StopTools, so it cannot also ask or refuse. A failure after a call is an error
	// like any other.
	if last := len(r.Then) - 1; calls && r.Then[last].isTerminal() && r.Then[last].Failure == nil {
		c.addError(fmt.Sprintf("then[%d]", last), "cannot go with a call: the model either waits for a tool or for the user")
	}
	return out, errors.Join(c.errs...)
}

// isTerminal reports whether the item ends the answer.
func (it Item) isTerminal() bool { return it.Failure != nil || it.Question != "" || it.Refusal != "" }

// ruleChecker checks one rule and collects its mistakes.
type ruleChecker struct {
	// path is the field name of the rule, for errors.
	path string
	// knownPlaceholders are the placeholders that items may use: the fixed ones and the named groups of the rule's
	// patterns.
	knownPlaceholders []string
	// hasUnknownGroups is set if a pattern cannot be read, whose groups may be placeholders.
	hasUnknownGroups bool
	errs             []error
}

// addError adds a mistake in a field of the rule.
func (c *ruleChecker) addError(field, format string, args ...any) {
	c.errs = append(c.errs, agentsvc.NewInvalidError(c.path+"."+field, format, args...))
}

// compilePattern compiles a condition and makes its groups known. It returns nil for "".
func (c *ruleChecker) compilePattern(field, expr string) *pattern.Pattern {
	if expr == "" {
		return nil
	}
	p, err := pattern.Compile(expr)
	if err != nil {
		c.addError(field, "%v", err)
		c.hasUnknownGroups = true
		return nil
	}
	c.knownPlaceholders = append(c.knownPlaceholders, p.Names()...)
	return p
}

// checkItem checks an item and returns it with normalized JSON values.
func (c *ruleChecker) checkItem(field string, it Item) Item {
	// Exactly one effect, because the order of several in one item would be undefined.
	effects := 0
	for _, set := range []bool{it.Text != "", it.Call != nil, it.Failure != nil, it.Question != "", it.Refusal != "", it.Artifact != nil} {
		if set {
			effects++
		}
	}
	if effects > 1 || (effects == 0 && it.Pause == 0 && it.Usage == nil) {
		c.addError(field, "needs exactly one of say, call, fail, ask, refuse and artifact; pause and usage may be added or stand alone")
	}
	c.checkUsage(field+".usage", it.Usage)
	switch {
	case it.Pause < 0:
		c.addError(field+".pause", "is negative")
	case it.Pause > maxPause:
		c.addError(field+".pause", "is %v; at most %v", it.Pause, maxPause)
	}
	c.checkPlaceholders(field, it.Text+it.Question+it.Refusal)
	switch {
	case it.Call != nil:
		it.Call = c.checkCall(field+".call", *it.Call)
	case it.Failure != nil && it.Failure.Status != 0 && (it.Failure.Status < 400 || it.Failure.Status > 599):
		c.addError(field+".fail.status", "is %d; an error has 400 to 599", it.Failure.Status)
	case it.Artifact != nil:
		it.Artifact = c.checkArtifact(field+".artifact", *it.Artifact)
	}
	return it
}

// maxPause bounds one pause of a script. The sum of an answer's pauses is bounded by the run's time limit.
const maxPause = 10 * time.Minute

// maxTokens bounds a configured token count, so that sums over many calls do not overflow.
const maxTokens = 1_000_000_000_000

// checkUsage checks configured token counts.
func (c *ruleChecker) checkUsage(field string, u *Usage) {
	if u != nil && (min(u.InputTokens, u.OutputTokens) < 0 || max(u.InputTokens, u.OutputTokens) > maxTokens) {
		c.addError(field, "has counts that are not 0 to %d", int64(maxTokens))
	}
}

// checkCall checks a tool call and returns it with normalized arguments.
func (c *ruleChecker) checkCall(field string, call Call) *Call {
	if call.Tool == "" {
		c.addError(field+".tool", "is missing")
	}
	c.checkPlaceholders(field+".tool", call.Tool)
	if len(call.Arguments) > 0 {
		call.Arguments, _ = c.normalizeValue(field+".arguments", call.Arguments).(map[string]any)
	}
	return &call
}

// checkArtifact checks an artifact and returns it with a normalized value.
func (c *ruleChecker) checkArtifact(field string, a Artifact) *Artifact {
	if a.Name == "" {
		c.addError(field+".name", "is missing")
	}
	sources := 0
	for _, set := range []bool{a.Text != "", a.Data != nil, a.FileBase64 != "", a.URL != ""} {
		if set {
			sources++
		}
	}
	if sources != 1 {
		c.addError(field, "needs exactly one of text, data, file_base64 and url")
	}
	// Decoded again when it is played; only its validity matters here.
	if _, err := base64.StdEncoding.DecodeString(a.FileBase64); err != nil {
		c.addError(field+".file_base64", "is no base64: %v", err)
	}
	c.checkPlaceholders(field, a.Text+a.URL)
	if a.Data != nil {
		a.Data = c.normalizeValue(field+".data", a.Data)
	}
	return &a
}

// normalizeValue returns v as decoded from JSON, whatever Go types the configuration's parser used, so that fillValue
// needs to know JSON's types only.
func (c *ruleChecker) normalizeValue(field string, v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		c.addError(field, "cannot be written as JSON: %v", err)
		return nil
	}
	c.checkPlaceholders(field, string(text))
	var out any
	_ = json.Unmarshal(text, &out)
	return out
}

// checkPlaceholders reports placeholders that the rule does not define.
func (c *ruleChecker) checkPlaceholders(field, s string) {
	for _, found := range placeholderPattern.FindAllStringSubmatch(s, -1) {
		if !c.hasUnknownGroups && !slices.Contains(c.knownPlaceholders, found[1]) {
			c.addError(field, "%s is not a placeholder; this rule has {{%s}}", found[0], strings.Join(c.knownPlaceholders, "}}, {{"))
		}
	}
}
