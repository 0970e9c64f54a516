package proc

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// TraceGC is the environment setting that makes a Go program write a line to its log at each garbage collection.
const TraceGC = "GODEBUG=gctrace=1"

var gcLine = regexp.MustCompile(`(?m)^gc \d+ @.*, \d+->\d+->(\d+) MB,`)

// LiveHeaps reads, oldest first, how many bytes were found alive by each garbage collection that the
// log of a program run with [TraceGC] contains. The trace rounds to whole MiB.
func LiveHeaps(log string) ([]int64, error) {
	raw, err := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("read the trace: %w", err)
	}
	var live []int64
	for _, m := range gcLine.FindAllSubmatch(raw, -1) {
		mb, err := strconv.ParseInt(string(m[1]), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("trace of collections: %w", ErrFormat)
		}
		live = append(live, mb<<20)
	}
	return live, nil
}
