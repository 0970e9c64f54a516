package task_test

import (
	"strings"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
)

// TestRulingsCopyNoText: ParseDecisions does not copy the texts of a message without decisions, which may be large.
func TestRulingsCopyNoText(t *testing.T) {
	m := agentsvc.Message{Parts: []agentsvc.Part{{Text: strings.Repeat("x", 4<<20)}, {Text: strings.Repeat("y", 4<<20)}}}
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if decisions, err := task.ParseDecisions(&m); err != nil || decisions != nil {
				b.Fatal(decisions, err)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n == 0 || n > 64<<10 {
		t.Errorf("a message of 8 MiB of text costs %d bytes", n)
	}
}
