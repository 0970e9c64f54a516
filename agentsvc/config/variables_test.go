package config

import (
	"strings"
	"testing"

	"stoa/tenancy/grant"

	"github.com/google/go-cmp/cmp"
)

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

// TestEmptyVariables checks that a variable that is set to the empty text has that value: no default of the document, of
// the field or of the environment replaces it. An empty default leaves the key out.
func TestEmptyVariables(t *testing.T) {
	t.Parallel()
	lookup := newMapLookup(map[string]string{"EMPTY": "", "OPENAI_API_KEY": "environment"})
	src := `
name: ${EMPTY:default}
description: "<${EMPTY}>"
llms:
  default: {provider: openai, base_url: "http://localhost:1", api_key: "${EMPTY}"}
  other:
    provider: openai
    api_key: ${NONE:}
    max_tokens: ${NONE:}
tools:
  t: {type: function, handler: calculator, description: "${EMPTY}", parameters: {type: object, title: "${EMPTY}"}}
agents:
  a:
    version: ${EMPTY}
    tools: ["t"]
`
	for _, tenant := range []bool{false, true} {
		o := Options{Lookup: lookup}
		if tenant {
			o.Tenant, o.Grants, o.OperatorKey = true, grant.List{{Name: grant.OperatorModels}}, lookup
			src = strings.Replace(src, `, base_url: "http://localhost:1"`, "", 1)
		}
		cfg, err := Parse([]byte(src), o)
		if tenant {
			want := `5:40: llms.default.api_key: is empty: give it a value, or leave it out to use the operator's`
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got := []any{cfg.Name, cfg.Description, cfg.LLMs["default"].APIKey, cfg.LLMs["other"].APIKey, cfg.Agents["a"].Version, cfg.Tools["t"].Parameters["title"]}
		if diff := cmp.Diff([]any{"", "<>", "", "environment", "", ""}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}
