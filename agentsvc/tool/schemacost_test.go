package tool_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"stoa/agentsvc/tool"
)

// TestSchemaMemory compiles schemas of 63 KB that take far more memory than their size. It is not parallel: it measures
// what the process allocates.
func TestSchemaMemory(t *testing.T) {
	const maxAllocated = 40 << 20
	list := func(item string, n int) string {
		return `{"anyOf": [` + strings.Repeat(item+",", n-1) + item + `]}`
	}
	tests := []struct {
		name, schema string
		wantError    string // a part of it, "" = none
	}{
		{"one pattern 1,800 times", list(`{"pattern":"(ab|bc|cd|de|f){120}"}`, 1800), ""},
		{"21,000 empty parts", list(`{}`, 21_000), "more than 6000 objects and booleans"},
		{"13,000 parts that are true", list(`true`, 13_000), "more than 6000 objects and booleans"},
		{"30,000 values of an enum", `{"enum": [` + strings.Repeat("0,", 30_000) + `0]}`, ""},
		{"5,900 empty parts", list(`{}`, 5_900), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := tool.NewSchema("", json.RawMessage(tt.schema))
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > maxAllocated {
				t.Errorf("%d KB allocate %d MiB, want at most %d", len(tt.schema)>>10, got>>20, maxAllocated>>20)
			}
			if (err != nil) != (tt.wantError != "") || err != nil && !strings.Contains(err.Error(), tt.wantError) {
				t.Errorf("NewSchema: %v, want %q", err, tt.wantError)
			}
		})
	}
}

// TestSchemaIsShared checks that an equal schema of an app is compiled once: each of its agents has the tools that it
// names, and each turn the tools of its MCP servers.
func TestSchemaIsShared(t *testing.T) {
	text := json.RawMessage(`{"anyOf": [` + strings.Repeat(`{},`, 999) + `{}]}`)
	first, err := tool.NewSchema("a", text)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := tool.NewSchema("a", text); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("100 more allocate %d KiB", got>>10)
	}
	if _, err := first.ValidateJSON(t.Context(), json.RawMessage("1")); err != nil {
		t.Error(err)
	}
}
