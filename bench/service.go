package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// searchService measures searches in the server's code, without requests, by the benchmark of that package: its own process searches and reads
// the bare rows in turn.
func (l *lab) searchService(ctx context.Context, r *report) error {
	if l.source == "" {
		r.note("DOCS: the search service without requests was left out, since no source was named")
		return nil
	}
	progress("the search service is measured without requests")
	cmd := exec.CommandContext(ctx, "go", "test", "./agentsvc/document/retrieval", "-run", "^$", "-bench", "^BenchmarkSearch$",
		"-benchtime", pick(l.quick, "50x", "200x"), "-timeout", "1h")
	cmd.Dir = l.source
	cmd.Env = append(os.Environ(), "STOA_TEST_POSTGRES="+l.postgres)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("measure the search service: %w\n%s%s", err, out.String(), problems.String())
	}
	r.rows = append(r.rows, serviceRows(out.String())...)
	return nil
}

// serviceLine is a line of the benchmark's output: engine, chunks, mode, and then values with their units.
var serviceLine = regexp.MustCompile(`^BenchmarkSearch/(\w+)/(\d+)/(\w+?)(?:-\d+)?\s+\d+\s+(.*)$`)

// serviceRows returns the rows of the benchmark's output.
func serviceRows(output string) (rows []row) {
	engines := map[string]string{"sqlite": "SQLite", "postgres": "PostgreSQL"}
	for line := range strings.Lines(output) {
		m := serviceLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		values := map[string]float64{}
		fields := strings.Fields(m[4])
		for i := 0; i+1 < len(fields); i += 2 {
			values[fields[i+1]], _ = strconv.ParseFloat(fields[i], 64)
		}
		what := fmt.Sprintf("%s, %s chunks of a tenant%s: %s search without a request ÷ the bare query, c=1, p50; p99", engines[m[1]], m[2], pick(m[2] == "10", ", 1000 others", ""), m[3])
		x := atMost("DOCS", what, 1.3, series{values["p50-ratio"]})
		if values["p99-ratio"] > 1.3 {
			x.met = no
		}
		x.figure += fmt.Sprintf("; %s (p50 %s ms)", number(values["p99-ratio"]), number(values["p50-ms"]))
		rows = append(rows, x)
	}
	return rows
}
