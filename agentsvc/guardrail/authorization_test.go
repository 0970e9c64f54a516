package guardrail_test

import (
	"errors"
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/guardrail"
)

func TestAuthorization(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o    guardrail.Authorization
		name string
		runs bool
	}{
		{guardrail.Authorization{}, "x", true},
		{guardrail.Authorization{Allowed: []string{}}, "x", false},
		{guardrail.Authorization{Allowed: []string{"x"}}, "x", true},
		{guardrail.Authorization{Allowed: []string{"x"}}, "X", false},
		{guardrail.Authorization{Allowed: []string{"x"}}, "xx", false},
		{guardrail.Authorization{Allowed: []string{"get_*"}}, "get_", true},
		{guardrail.Authorization{Allowed: []string{"get_*"}}, "forget_it", false},
		{guardrail.Authorization{Allowed: []string{"*_get"}}, "a_get", true},
		{guardrail.Authorization{Allowed: []string{"a*b*c"}}, "a-b-b-c", true},
		{guardrail.Authorization{Allowed: []string{"a*b*c"}}, "a-c-b", false},
		{guardrail.Authorization{Allowed: []string{"a*a"}}, "a", false},
		{guardrail.Authorization{Allowed: []string{"a.c", "a[b]c", "a?c"}}, "abc", false},
		{guardrail.Authorization{Allowed: []string{"*"}, Blocked: []string{"*admin*"}}, "my_admin_tool", false},
		{guardrail.Authorization{Allowed: []string{"x"}, Blocked: []string{"x"}}, "x", false},
		{guardrail.Authorization{Blocked: []string{"rm"}}, "ls", true},
		{guardrail.Authorization{Rule: newRule(guardrail.Warn), Blocked: []string{"rm"}}, "rm", true},
		{guardrail.Authorization{Rule: newRule(guardrail.Allow), Blocked: []string{"rm"}}, "rm", true},
	} {
		f, strikes := newGuardrail(t, guardrail.Options{Authorization: &tt.o}).EvaluateTool(tt.name)
		if f.Blocks() == tt.runs || (f.Blocks() && !strikes) {
			t.Errorf("%+v: %s: %+v", tt.o, tt.name, f)
		}
		f, shadowed := newGuardrail(t, guardrail.Options{Shadow: true, Authorization: &tt.o}).EvaluateTool(tt.name)
		if f.Blocks() || shadowed != strikes {
			t.Errorf("in the shadow of %+v: %s: %+v", tt.o, tt.name, f)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	content := func(patterns ...string) guardrail.Options {
		return guardrail.Options{Output: guardrail.Output{Content: &guardrail.Content{Patterns: patterns}}}
	}
	for want, o := range map[string]guardrail.Options{
		"output.content.blocked_patterns[1]: is no RE2 expression: error parsing regexp: missing closing ): `(`":                                            content("a", "("),
		"output.content.blocked_patterns[0]: matches the empty text, so it would match everywhere":                                                          content(`\b`),
		"output.content.blocked_patterns[0]: is too large: it compiles to 100000 instructions, at most 2000 are run; shorten repetitions such as {100,200}": content(strings.Repeat(`x{1000}`, 100)),
		"output.content.blocked_keywords[0]: is empty":                                                                                                      {Output: guardrail.Output{Content: &guardrail.Content{Keywords: []string{" "}}}},
		"input.injection.patterns[0]: matches the empty text, so it would match everywhere":                                                                 {Input: guardrail.Input{Injection: &guardrail.Injection{Patterns: []string{"a*"}}}},
		"input.length.min_length: cannot go with the action modify: what is too short cannot be lengthened":                                                 {Input: guardrail.Input{Length: &guardrail.Length{Rule: newRule(guardrail.Modify), Min: 1}}},
		"tool.authorization.action: cannot be modify: a tool call is either allowed or blocked":                                                             {Authorization: &guardrail.Authorization{Rule: newRule(guardrail.Modify)}},
	} {
		_, err := guardrail.New("g", o)
		if !errors.Is(err, agentsvc.CodeInvalid) || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
