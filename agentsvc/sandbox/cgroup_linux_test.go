package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"stoa/agentsvc/sandbox"
)

// TestControlGroup checks that a program and all processes it starts are in a control group of their own from the
// first instruction, with its limits set before, and that the group is removed with them.
func TestControlGroup(t *testing.T) {
	t.Parallel()
	base, _ := sandbox.CurrentCgroup()
	parent := filepath.Join(base, "stoa-test")
	if err := os.Mkdir(parent, 0o755); base == "" || err != nil {
		skipLoudly(t, fmt.Sprintf("this machine has no control group of version 2 that the tests may write to: %v", err))
	}
	t.Cleanup(func() { _ = os.Remove(parent) })
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		parent := filepath.Join(parent, strings.ReplaceAll(filepath.Base(t.Name()), " ", "-"))
		if err := os.Mkdir(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(parent) })
		sandbox.ForceGroups(h, parent, map[string]string{"cgroup.max.descendants": "0"}) // a limit that needs no controller
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		dir := newFolder(t)
		cmd, err := h.NewCommand(ctx, sandbox.Program{
			File: "/usr/bin/bash", Folder: dir, Any: true, Env: []string{"PATH=" + sandbox.SearchPath}, Args: []string{"bash", "-c", "sleep 600 & echo ready; wait"},
		})
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("it printed %q: %v", line, err)
		}
		groups, _ := filepath.Glob(filepath.Join(parent, "stoa-program-*"))
		if len(groups) != 1 {
			t.Fatalf("groups %q", groups)
		}
		if limit, _ := os.ReadFile(filepath.Join(groups[0], "cgroup.max.descendants")); string(limit) != "0\n" {
			t.Errorf("the limit is %q", limit)
		}
		if pids, _ := os.ReadFile(filepath.Join(groups[0], "cgroup.procs")); len(strings.Fields(string(pids))) < 2 {
			t.Errorf("processes %q", pids)
		}
		sandbox.Kill(cmd)
		_ = cmd.Wait()
		ticker := time.NewTicker(10 * time.Millisecond) // a killed process leaves its group shortly after Wait
		defer ticker.Stop()
		for {
			if sandbox.Kill(cmd); !fileExists(groups[0]) {
				return
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				t.Fatal("the group is still there")
			}
		}
	})
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestPrepareControlGroups imitates the kernel's files and checks what the server writes where a group is delegated
// to it.
func TestPrepareControlGroups(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if sandbox.PrepareCgroups(filepath.Join(base, "missing"), true) {
		t.Error("a group that is not there can be divided")
	}
	// A folder that is not a control group has no limit files: the group is not used and is removed.
	if err := os.WriteFile(filepath.Join(base, "cgroup.subtree_control"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if sandbox.PrepareCgroups(base, true) {
		t.Error("a folder without pids.max can hold programs")
	}
	if left, _ := filepath.Glob(filepath.Join(base, "stoa-program-*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestGroupLimits checks what the server writes to the files of a group, and that only an old kernel's may be missing.
func TestGroupLimits(t *testing.T) {
	t.Parallel()
	limits := map[string]string{"pids.max": "512", "memory.max": "2147483648", "memory.swap.max": "0", "memory.oom.group": "1"}
	for missing, accepted := range map[string]bool{"": true, "pids.max": false, "memory.max": false, "memory.swap.max": true, "memory.oom.group": true} {
		t.Run("without "+missing, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for file := range limits {
				if file == missing {
					continue
				}
				if err := os.WriteFile(filepath.Join(folder, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := sandbox.WriteGroupLimits(folder); (err == nil) != accepted {
				t.Fatal(err)
			}
			for file, want := range limits {
				if got, _ := os.ReadFile(filepath.Join(folder, file)); accepted && file != missing && string(got) != want {
					t.Errorf("%s is %q, want %q", file, got, want)
				}
			}
		})
	}
}
