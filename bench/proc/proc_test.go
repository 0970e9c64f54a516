package proc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, line string
		want       Stat
		bad        bool
	}{
		{
			name: "a command with brackets and spaces",
			line: "42 (post) gres: x) S 7 42 42 0 -1 4194304 100 0 0 0 150 50 20 5 20 0 1 0 99 1000 200",
			want: Stat{Parent: 7, Self: 2 * time.Second, Waited: 250 * time.Millisecond},
		},
		{name: "short", line: "42 (a) S 7", bad: true},
		{name: "no command", line: "", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := parseStat(tt.line)
			if tt.bad != errors.Is(err, ErrFormat) || got != tt.want {
				t.Errorf("parseStat = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestProcessIsStartedMeasuredAndStopped(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; sleep 60"}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	deadline := time.Now().Add(20 * time.Second)
	for {
		cpu, err := TreeCPU(p.PID())
		if err != nil {
			t.Fatal(err)
		}
		if cpu > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the busy process used no processor time")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if rss, err := RSS(p.PID()); err != nil || rss < 1<<10 {
		t.Errorf("RSS = %d, %v", rss, err)
	}
	p.Stop()
	if _, err := CPU(p.PID()); err == nil {
		t.Error("the process is still there after Stop")
	}
}

func TestReadySaysWhyAProcessEnded(t *testing.T) {
	t.Parallel()
	p, err := Start(Command{Path: "/bin/sh", Args: []string{"-c", "echo no such database; exit 1"}, Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Ready(t.Context(), "http://127.0.0.1:1/health")
	if !errors.Is(err, ErrEnded) {
		t.Fatalf("Ready = %v, want ErrEnded", err)
	}
}

func TestLiveHeaps(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	text := `time=x level=INFO msg="gc 1 is no trace"
gc 1 @0.011s 3%: 0.02+0.6+0.004 ms clock, 0.05+0.2/0.5/0.1+0.008 ms cpu, 3->4->2 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P
gc 12 @0.911s 3%: 0.02+0.6+0.004 ms clock, 0.05+0.2/0.5/0.1+0.008 ms cpu, 30->41->29 MB, 40 MB goal, 0 MB stacks, 0 MB globals, 2 P (forced)
`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LiveHeaps(log)
	if want := []int64{2 << 20, 29 << 20}; err != nil || !slices.Equal(got, want) {
		t.Errorf("LiveHeaps = %v, %v, want %v", got, err, want)
	}
}
