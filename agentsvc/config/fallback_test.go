package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyFallbacks parses documents whose fallbacks are costly to follow: each model names all that come after it, and
// each names the next one. Before there was a bound the first took 9 s, and building the second the memory of the square
// of its size.
func TestManyFallbacks(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		models int
		// fallbacks is how many of the models after it each one names.
		fallbacks int
		want      string // a part of the problem, "" = none
	}{
		{"all that follow", 250, 250, "llms.k0.fallbacks: leads to more than 32 models"},
		{"a long chain", 5_000, 1, "llms.k0.fallbacks: leads to more than 32 models"},
		{"a chain at the bound", maxFallbacks + 1, 1, ""},
		{"a chain beyond the bound", maxFallbacks + 2, 1, "llms.k0.fallbacks: leads to more than 32 models"},
		{"all, at the bound", maxFallbacks + 1, maxFallbacks, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var doc strings.Builder
			doc.WriteString("agents: {a: {llm: k0}}\nllms:\n")
			for i := range tt.models {
				var names []string
				for j := i + 1; j < tt.models && j <= i+tt.fallbacks; j++ {
					names = append(names, fmt.Sprintf("k%d", j))
				}
				fmt.Fprintf(&doc, "  k%d: {provider: scripted, fallbacks: [%s]}\n", i, strings.Join(names, ","))
			}
			_, err := Parse([]byte(doc.String()), Options{})
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("Parse: %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Parse: %.300v, want %q", err, tt.want)
			}
		})
	}
}
