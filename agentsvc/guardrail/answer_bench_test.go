package guardrail_test

import (
	"strings"
	"testing"

	"stoa/agentsvc/guardrail"
)

// BenchmarkAnswer checks an answer of a thousand words, word by word.
func BenchmarkAnswer(b *testing.B) {
	words := strings.SplitAfter(strings.Repeat("It is the fourth of 12 letters that I wrote to them. ", 90), " ")
	var many []string
	for i := range 200 {
		many = append(many, strings.Repeat(string(rune('a'+i%26)), 5)+"word"+string(rune('a'+i/26)))
	}
	for name, o := range map[string]guardrail.Output{
		"pii":          {PII: &allPII},
		"ten words":    {Content: &guardrail.Content{Keywords: many[:10]}},
		"many words":   {Content: &guardrail.Content{Keywords: many}},
		"pattern":      {Content: &guardrail.Content{Patterns: []string{`(?i)\bproject\s+\w+`}}},
		"long pattern": {Content: &guardrail.Content{Patterns: []string{`\w{1,500}!`}}},
	} {
		g := newGuardrail(b, guardrail.Options{Output: o})
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				evaluateAnswer(g, words...)
			}
		})
	}
}
