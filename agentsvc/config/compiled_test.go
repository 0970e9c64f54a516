package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestCompiledTogether checks documents in which each list, script or schema is within its own bound, and all together
// take gigabytes when they are compiled. They are refused without being built.
func TestCompiledTogether(t *testing.T) {
	t.Parallel()
	const expressions, schemas = "all regular expressions of the document compile to", "all JSON Schemas of the document have"
	const base = "llms: {m: {provider: scripted}}\nagents: {a: {llm: m}}\n"
	tests := []struct {
		name, head, entry string
		entries           int
		want              string // a part of the problem, "" = none
	}{
		{"guardrails", base + "guardrails:", `{input: {injection: {patterns: ["(a|b|c|d){100}"]}}}`, 200, expressions},
		{"answers", base + "guardrails:", `{output: {content: {blocked_patterns: ["a{900}"]}}}`, 200, expressions},
		{"keywords", base + "guardrails:", `{output: {content: {blocked_keywords: [` + strings.Repeat("k", 900) + `]}}}`, 200, expressions},
		{"scripts", "agents: {a: {llm: k0}}\nllms:", `{provider: scripted, script: [{when: {text: "a{900}"}, then: [{say: a}]}]}`, 200, expressions},
		{"parameters", base + "tools:", `{type: function, handler: calculator, parameters: {type: object, properties: {p: {pattern: "a{900}"}}}}`, 200, expressions},
		{"names of members", base + "tools:", `{type: function, handler: calculator, parameters: {type: object, patternProperties: {"a{900}": {}}}}`, 200, expressions},
		{"answers in JSON", "llms: {m: {provider: scripted}}\nagents:", `{llm: m, structured_output: {schema: {pattern: "a{900}"}}}`, 200, expressions},
		{"parts of schemas", base + "tools:", `{type: function, handler: calculator, parameters: {type: object, anyOf: [` + strings.Repeat("{}, ", 149) + `{}]}}`, 140, schemas},
		{"many of usual size", base + "tools:", `{type: function, handler: calculator, parameters: {type: object, properties: {expression: {type: string, pattern: "^[0-9+]{1,50}$"}}}}`, 200, ""},
		{"guardrails of usual size", base + "guardrails:", `{input: {injection: {patterns: ["(?i)drop\\s+table"]}}}`, 60, ""},
		{"guardrails without patterns", base + "guardrails:", `{input: {injection: {enabled: true}}}`, 2000, ""},
		{"what is off", base + "guardrails:", `{enabled: false, input: {injection: {patterns: ["(a|b|c|d){100}"]}}}`, 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var doc strings.Builder
			doc.WriteString(tt.head + "\n")
			for i := range tt.entries {
				fmt.Fprintf(&doc, "  k%d: %s\n", i, tt.entry)
			}
			built := false
			err := Check([]byte(doc.String()), Options{}, func(*Config) error { built = true; return nil })
			if built != (tt.want == "") {
				t.Errorf("built: %v", built)
			}
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Check: %.300v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Check: %.300v, want %q", err, tt.want)
			}
		})
	}
}

// TestLargeExpressionInSchema checks a schema with expressions of 1 KB that compile to a million instructions each, which
// take gigabytes, and one with more parts than a schema may have.
func TestLargeExpressionInSchema(t *testing.T) {
	const maxAllocated = 64 << 20
	tests := []struct{ name, schema, want string }{
		{"expressions", `{type: object, properties: {` + repeatFormat(`p%d: {pattern: "(`+strings.Repeat("ab", 500)+`){1000}"}, `, 3) + `}}`, ".pattern: is no JSON Schema"},
		{"one expression many times", `{type: object, anyOf: [` + strings.Repeat(`{pattern: "(ab|bc|cd|de|f){120}"}, `, 100) + `{}]}`, "all regular expressions"},
		{"parts", `{type: object, anyOf: [` + strings.Repeat("{}, ", 6_000) + `{}]}`, "is too large: 6002 objects"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			doc := "llms: {m: {provider: scripted}}\nagents: {a: {llm: m, structured_output: {schema: " + tt.schema + "}}}\n"
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := Parse([]byte(doc), Options{})
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Parse: %.300v, want %q", err, tt.want)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > maxAllocated {
				t.Errorf("%d KB allocate %d MiB, want at most %d", len(doc)>>10, got>>20, maxAllocated>>20)
			}
		})
	}
}
