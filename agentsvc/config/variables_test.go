package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestInterpolate(t *testing.T) {
	t.Parallel()
	lookup := newMapLookup(map[string]string{"A": "one", "B": "${A}", "EMPTY": "", "DOLLAR": "$", "BRACE": "a}b"})
	for _, test := range []struct {
		text, want string
		faults     []badReference
	}{
		{text: "plain $ and $$ and {x}", want: "plain $ and $$ and {x}"},
		{text: "${A}", want: "one"},
		{text: "<${A}-${A}>", want: "<one-one>"},
		{text: "${B}", want: "${A}"},
		{text: "${DOLLAR}{A}", want: "${A}"},
		{text: "${BRACE}", want: "a}b"},
		{text: "${C:two}", want: "two"},
		{text: "${C:}", want: ""},
		{text: "${C:http://x:1/y}", want: "http://x:1/y"},
		{text: "${C:-1}", want: "-1"},
		{text: "${EMPTY:two}", want: "two"},
		{text: "${A:two}", want: "one"},
		{text: "$${A}", want: "${A}"},
		{text: "$$${A}", want: "$${A}"},
		{text: "$${", want: "${"},
		{text: "${C} ${D}", want: " ", faults: []badReference{{"C"}, {"D"}}},
		{text: "${EMPTY}", faults: []badReference{{"EMPTY"}}},
		{text: "${A", faults: []badReference{{}}},
		{text: "${}", faults: []badReference{{}}},
		{text: "${1A}", faults: []badReference{{}}},
		{text: "${A B}", faults: []badReference{{}}},
		{text: "${a.b:c}", faults: []badReference{{}}},
	} {
		got, faults := interpolateText(test.text, lookup, 1000)
		if got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
		if diff := cmp.Diff(test.faults, faults, cmpopts.EquateEmpty(), cmp.AllowUnexported(badReference{})); diff != "" {
			t.Errorf("%q: -want +got:\n%s", test.text, diff)
		}
	}
}

// TestVariablesKeepTheStructure gives variables values that would be YAML: they stay text.
func TestVariablesKeepTheStructure(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"x\nserver: {port: 1}", "[a, b]", "{a: b}", "*anchor", "&a b", "!!binary aGk=", "# comment", "a: b", "<<", "~", "null",
		"2024-01-01", "0x10", "true", "1e9", "${OTHER}", "$${A}", `"quoted"`, "- item",
	} {
		for _, src := range []string{"name: ${V}\n", "name: \"${V}\"\n", "name: >-\n  ${V}\n", `{"name": "${V}"}`} {
			cfg, err := Parse([]byte(src), Options{Lookup: newMapLookup(map[string]string{"V": value})})
			if err != nil {
				t.Errorf("%q in %q: %v", value, src, err)
				continue
			}
			if cfg.Name != value || cfg.Server.Port != 8080 {
				t.Errorf("%q in %q: name %q, port %d", value, src, cfg.Name, cfg.Server.Port)
			}
		}
	}
}

func TestVariablesHaveTheTypeOfTheirText(t *testing.T) {
	t.Parallel()
	lookup := newMapLookup(map[string]string{"PORT": "9000", "ON": "true", "HEAT": "1.5", "KEY": "12345", "DAY": "2024-01-01", "NO": "null"})
	for _, src := range []string{
		`
server:
  port: ${PORT}
observability:
  metrics:
    enabled: ${ON}
llms:
  default:
    provider: openai
    api_key: ${KEY}
    temperature: ${HEAT}
    max_tokens: ${TOKENS:7}
    base_url: ${BASE:}
tools:
  clock:
    type: function
    handler: current_time
    parameters:
      port: ${PORT}
      quoted: "${PORT}"
      day: ${DAY}
      none: ${NONE:}
      text: ${NO}
      on: ${ON}
`,
		`{"server": {"port": "${PORT}"}, "observability": {"metrics": {"enabled": "${ON}"}},
		"llms": {"default": {"provider": "openai", "api_key": "${KEY}", "temperature": "${HEAT}", "max_tokens": "${TOKENS:7}"}},
		"tools": {"clock": {"type": "function", "handler": "current_time", "parameters": {"port": 9000, "quoted": "${PORT}", "day": "${DAY}", "none": null, "text": "${NO}", "on": true}}}}`,
	} {
		cfg := mustParse(t, src, Options{Lookup: lookup})
		l := cfg.LLMs["default"]
		if cfg.Server.Port != 9000 || !cfg.Observability.Metrics.Enabled || *l.Temperature != 1.5 || l.MaxTokens != 7 || l.APIKey != "12345" {
			t.Errorf("port %d, metrics %v, llm %+v", cfg.Server.Port, cfg.Observability.Metrics.Enabled, l)
		}
		want := map[string]any{"port": 9000, "quoted": "9000", "day": "2024-01-01", "none": nil, "text": "null", "on": true}
		if diff := cmp.Diff(want, cfg.Tools["clock"].Parameters); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
