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

// compile checks rule number n of a script.
func compile(n int, r Rule) (rule, error) {
	c := checker{at: fmt.Sprintf("script[%d]", n), known: []string{"text", "result"}}
	out := rule{tool: r.When.ToolResult, items: slices.Clone(r.Then), usage: r.Usage, alone: r.Alone}
	c.usage("usage", r.Usage)
	out.text = c.pattern("when.text", r.When.Text)
	out.messageID = c.pattern("when.message_id", r.When.MessageID)
	if len(r.Then) == 0 {
		c.fail("then", "is empty; say at least what to answer")
	}
	for i, it := range out.items {
		out.items[i] = c.item(fmt.Sprintf("then[%d]", i), it)
		if it.ends() && i < len(r.Then)-1 {
			c.fail(fmt.Sprintf("then[%d]", i+1), "comes after the answer's end: nothing can follow fail, ask or refuse")
		}
		if r.Alone && (it.Call != nil || it.Artifact != nil || it.Ask != "" || it.Refuse != "") {
			c.fail(fmt.Sprintf("then[%d]", i), "is the work of a task; an answer with reply: message only says words")
		}
	}
	calls := slices.ContainsFunc(r.Then, func(it Item) bool { return it.Call != nil })
	if last := len(r.Then) - 1; calls && r.Then[last].ends() && r.Then[last].Fail == nil {
		c.fail(fmt.Sprintf("then[%d]", last), "cannot go with a call: the model either waits for a tool or for the user")
	}
	return out, errors.Join(c.errs...)
}

// ends reports whether an answer ends with it.
func (it Item) ends() bool { return it.Fail != nil || it.Ask != "" || it.Refuse != "" }

// checker gathers the mistakes of one rule.
type checker struct {
	at    string
	known []string // names of placeholders
	errs  []error
}

func (c *checker) fail(field, format string, args ...any) {
	c.errs = append(c.errs, agentsvc.Invalid(c.at+"."+field, format, args...))
}

func (c *checker) pattern(field, expr string) *pattern.Pattern {
	if expr == "" {
		return nil
	}
	p, err := pattern.Compile(expr)
	if err != nil {
		c.fail(field, "%v", err)
		return nil
	}
	c.known = append(c.known, p.Names()...)
	return p
}

// item checks it and returns it with its JSON values as they will be sent.
func (c *checker) item(field string, it Item) Item {
	effects := 0
	for _, set := range []bool{it.Say != "", it.Call != nil, it.Fail != nil, it.Ask != "", it.Refuse != "", it.Artifact != nil} {
		if set {
			effects++
		}
	}
	if effects > 1 || (effects == 0 && it.Pause == 0 && it.Usage == nil) {
		c.fail(field, "needs exactly one of say, call, fail, ask, refuse and artifact; pause and usage may stand beside it or alone")
	}
	c.usage(field+".usage", it.Usage)
	switch {
	case it.Pause < 0:
		c.fail(field+".pause", "is negative")
	case it.Pause > MaxPause:
		c.fail(field+".pause", "is %v; at most %v", it.Pause, MaxPause)
	}
	c.placeholders(field, it.Say+it.Ask+it.Refuse)
	switch {
	case it.Call != nil:
		it.Call = c.call(field+".call", *it.Call)
	case it.Fail != nil && it.Fail.Status != 0 && (it.Fail.Status < 400 || it.Fail.Status > 599):
		c.fail(field+".fail.status", "is %d; an error has 400 to 599", it.Fail.Status)
	case it.Artifact != nil:
		it.Artifact = c.artifact(field+".artifact", *it.Artifact)
	}
	return it
}

// MaxPause bounds one pause of a script. How long all those of an answer take together, the longest run bounds.
const MaxPause = 10 * time.Minute

// maxUsage bounds a count of tokens, so that the sum of many calls is still a number.
const maxUsage = 1_000_000_000_000

func (c *checker) usage(field string, u *Usage) {
	if u != nil && (min(u.InputTokens, u.OutputTokens) < 0 || max(u.InputTokens, u.OutputTokens) > maxUsage) {
		c.fail(field, "has counts that are not 0 to %d", int64(maxUsage))
	}
}

func (c *checker) call(field string, call Call) *Call {
	if call.Tool == "" {
		c.fail(field+".tool", "is missing")
	}
	if len(call.Arguments) > 0 {
		call.Arguments, _ = c.value(field+".arguments", call.Arguments).(map[string]any)
	}
	return &call
}

func (c *checker) artifact(field string, a Artifact) *Artifact {
	if a.Name == "" {
		c.fail(field+".name", "is missing")
	}
	sources := 0
	for _, set := range []bool{a.Text != "", a.Data != nil, a.FileBase64 != "", a.URL != ""} {
		if set {
			sources++
		}
	}
	if sources != 1 {
		c.fail(field, "needs exactly one of text, data, file_base64 and url")
	}
	if _, err := base64.StdEncoding.DecodeString(a.FileBase64); err != nil {
		c.fail(field+".file_base64", "is no base64: %v", err)
	}
	c.placeholders(field, a.Text+a.URL)
	if a.Data != nil {
		a.Data = c.value(field+".data", a.Data)
	}
	return &a
}

// value returns v as JSON knows it, whatever Go types it was made of.
func (c *checker) value(field string, v any) any {
	text, err := json.Marshal(v)
	if err != nil {
		c.fail(field, "cannot be written as JSON: %v", err)
		return nil
	}
	c.placeholders(field, string(text))
	var out any
	_ = json.Unmarshal(text, &out)
	return out
}

func (c *checker) placeholders(field, s string) {
	for _, found := range placeholder.FindAllStringSubmatch(s, -1) {
		if !slices.Contains(c.known, found[1]) {
			c.fail(field, "%s stands for nothing; this rule knows {{%s}}", found[0], strings.Join(c.known, "}}, {{"))
		}
	}
}
