package pg

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed call.sql
var call string

// Commits is how many transactions one call of the baseline commits.
const Commits = 2

// ErrOutput is returned when pgbench did not print what it always prints.
var ErrOutput = errors.New("pgbench's output was not understood")

// Baseline is pgbench doing the two transactions of one call.
type Baseline struct {
	database string
	program  string
	dir      string
	run      int // makes the ids of each run its own
}

// Rate is what one run of the baseline reached.
type Rate struct {
	Calls int
	RPS   float64
	P50   time.Duration // of a whole call
	P99   time.Duration
	CPU   time.Duration // of pgbench itself, per call
}

// NewBaseline prepares pgbench for a database that stoa has made, so that its tables and indexes are the product's own;
// row-level security is turned off there. Scratch files go into dir.
func NewBaseline(ctx context.Context, c *Cluster, database, dir string) (*Baseline, error) {
	program, err := exec.LookPath("pgbench")
	if err != nil {
		return nil, fmt.Errorf("pgbench (Debian package postgresql): %w", err)
	}
	if _, err := c.DisableRowSecurity(ctx, database); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "call.sql"), []byte(call), 0o600); err != nil {
		return nil, fmt.Errorf("write the baseline's script: %w", err)
	}
	return &Baseline{database: c.URL(database), program: program, dir: dir}, nil
}

// Run drives the baseline with so many clients for so long. A duration under a second counts as one.
func (b *Baseline) Run(ctx context.Context, clients int, d time.Duration) (Rate, error) {
	b.run++
	logs := filepath.Join(b.dir, fmt.Sprintf("pgbench-%d", b.run))
	cmd := exec.CommandContext(ctx, b.program, "--no-vacuum", "--protocol", "prepared", "--file", filepath.Join(b.dir, "call.sql"),
		"--client", strconv.Itoa(clients), "--jobs", strconv.Itoa(min(clients, 2)), "--time", strconv.Itoa(max(1, int(d.Seconds()))),
		"--define", "run="+strconv.Itoa(b.run), "--define", "n=0", "--log", "--log-prefix", logs, b.database)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return Rate{}, fmt.Errorf("pgbench: %w: %s", err, complaint(string(out)))
	}
	rate, err := parseReport(string(out))
	if err != nil {
		return Rate{}, err
	}
	if rate.Calls > 0 {
		rate.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / time.Duration(rate.Calls)
	}
	rate.P50, rate.P99, err = readLatencies(logs)
	return rate, err
}

var (
	reportRPS   = regexp.MustCompile(`(?m)^tps = ([0-9.]+) `)
	reportCalls = regexp.MustCompile(`(?m)^number of transactions actually processed: (\d+)`)
)

func parseReport(out string) (Rate, error) {
	rps, calls := reportRPS.FindStringSubmatch(out), reportCalls.FindStringSubmatch(out)
	if rps == nil || calls == nil {
		return Rate{}, fmt.Errorf("%w: %s", ErrOutput, lastLine(out))
	}
	var r Rate
	var err1, err2 error
	r.RPS, err1 = strconv.ParseFloat(rps[1], 64)
	r.Calls, err2 = strconv.Atoi(calls[1])
	if err := errors.Join(err1, err2); err != nil {
		return Rate{}, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return r, nil
}

// readLatencies reads and removes pgbench's logs, one line a call: "client, number, microseconds, ...".
func readLatencies(prefix string) (p50, p99 time.Duration, err error) {
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		return 0, 0, fmt.Errorf("find pgbench's logs: %w", err)
	}
	var all []int64
	for _, name := range files {
		if all, err = appendLatencies(all, name); err != nil {
			return 0, 0, err
		}
		_ = os.Remove(name)
	}
	if len(all) == 0 {
		return 0, 0, fmt.Errorf("%w: no latencies", ErrOutput)
	}
	slices.Sort(all)
	at := func(percent int) time.Duration {
		return time.Duration(all[(len(all)-1)*percent/100]) * time.Microsecond
	}
	return at(50), at(99), nil
}

func appendLatencies(all []int64, name string) ([]int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open pgbench's log: %w", err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			return nil, fmt.Errorf("%w: %q", ErrOutput, lines.Text())
		}
		us, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %q", ErrOutput, lines.Text())
		}
		all = append(all, us)
	}
	return all, lines.Err()
}

// complaint is the first error that pgbench printed.
func complaint(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ERROR:") {
			return strings.TrimSpace(line)
		}
	}
	return lastLine(out)
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}
