package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.RunHelper(os.Getenv(sandbox.HelperVariable))
	runServer()
	runAttack()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		cleanUp()
		os.Exit(code)
	}))
}

// forEachSandbox runs a test with every sandbox that this machine offers.
func forEachSandbox(t *testing.T, test func(t *testing.T, h *sandbox.Host)) {
	t.Helper()
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bubblewrap", "bubblewrap not enclosed", "landlock", "landlock without namespaces"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sandbox.NewHost(helper, sandbox.Options{ProgramFolders: []string{os.TempDir()}}) // this binary is copied there
			requireBackend(t, h, name)
			test(t, h)
		})
	}
}

// requireBackend makes h use a sandbox, or skips the test loudly: a kernel can lack Landlock. Without bubblewrap the test fails
// where everything is required.
func requireBackend(t *testing.T, h *sandbox.Host, name string) {
	t.Helper()
	if sandbox.ForceBackend(h, name) {
		return
	}
	if name == "bubblewrap" && os.Getenv("STOA_TEST_REQUIRE") != "" {
		t.Fatal("bubblewrap does not work on this machine")
	}
	skipLoudly(t, "this machine has no sandbox by "+name)
}

// skipLoudly skips a test and prints why, also without -v.
func skipLoudly(t *testing.T, why string) {
	t.Helper()
	fmt.Fprintf(os.Stdout, "    ATTENTION: %s: NOTHING IS PROVED HERE: %s\n", t.Name(), why)
	t.SkipNow()
}

// runProgram runs a program in a new folder and returns its output.
func runProgram(t *testing.T, h *sandbox.Host, p sandbox.Program, words ...string) (out string, code int) {
	t.Helper()
	if p.Folder == "" {
		p.Folder = newFolder(t)
	}
	file, err := filepath.EvalSymlinks(sandbox.FindProgram(words[0]))
	if err != nil {
		t.Fatal(err)
	}
	p.File, p.Args = file, words
	p.Env = append(p.Env, "PATH="+sandbox.SearchPath)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd, err := h.NewCommand(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	text, err := cmd.CombinedOutput()
	sandbox.Kill(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func newFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestRuns(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		dir := newFolder(t)
		if out, code := runProgram(t, h, sandbox.Program{Folder: dir}, "touch", "made"); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
			t.Error(err)
		}
		out, code := runProgram(t, h, sandbox.Program{Env: []string{"A=1"}}, "env")
		if want := "A=1\nPATH=" + sandbox.SearchPath + "\n"; strings.ReplaceAll(out, "PWD="+dir+"\n", "") != want || code != 0 {
			t.Errorf("environment %q, want %q", out, want)
		}
		if out, code := runProgram(t, h, sandbox.Program{}, "ls", "missing"); code != 2 {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}

// TestConfinement tries what a program in a sandbox must not be able to do.
func TestConfinement(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		_, full := h.DescribeIsolation()
		outside := newFolder(t)
		secret := filepath.Join(outside, "secret")
		if err := os.WriteFile(secret, []byte("a secret"), 0o644); err != nil {
			t.Fatal(err)
		}
		dir := newFolder(t)
		if err := os.Symlink(secret, filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(dir, "folder")); err != nil {
			t.Fatal(err)
		}
		for _, words := range [][]string{
			{"cat", secret}, {"cat", "link"}, {"cat", "folder/secret"}, {"cat", "../secret"}, {"cat", "/etc/passwd"}, {"cat", "/proc/1/environ"},
			{"touch", filepath.Join(outside, "new")}, {"touch", "folder/new"}, {"touch", "/usr/new"}, {"touch", "/dev/new"}, {"rm", secret},
			{"find", ".", "-exec", "id", ";"}, {"env", "id"}, {"bash", "-c", "/usr/bin/id"}, {"xargs", "id"},
			{"/lib64/ld-linux-x86-64.so.2", "/usr/bin/id"},
		} {
			out, _ := runProgram(t, h, sandbox.Program{Folder: dir}, words...)
			if strings.Contains(out, "a secret") || strings.Contains(out, "uid=") || strings.Contains(out, "root:") || strings.Contains(out, "PATH=") {
				t.Errorf("%q: %s", words, out)
			}
		}
		if entries, _ := os.ReadDir(outside); len(entries) != 1 {
			t.Errorf("the folder next to it contains %v", entries)
		}
		if !full {
			return
		}
		service := filepath.Join(outside, "socket")
		l, err := net.Listen("unix", service)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		if out, code := runProgram(t, h, sandbox.Program{Any: true}, "perl", "-e",
			`use IO::Socket::UNIX; IO::Socket::UNIX->new(Peer => "`+service+`") or die "$!"`); code == 0 || !strings.Contains(out, "denied") && !strings.Contains(out, "No such file") || strings.Contains(out, "@INC") {
			t.Errorf("a socket of the host can be reached: %s", out)
		}
		out, code := runProgram(t, h, sandbox.Program{Any: true}, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/1")
		if code == 0 || strings.Contains(out, "refused") {
			t.Errorf("the network can be reached: %s", out)
		}
	})
}

// TestOtherPrograms checks that a program can start those it was given, and a script its interpreter.
func TestOtherPrograms(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		if out, code := runProgram(t, h, sandbox.Program{Others: []string{sandbox.FindProgram("id")}}, "env", "id", "-u"); code != 0 || strings.TrimSpace(out) != strconv.Itoa(os.Getuid()) {
			t.Errorf("exit code %d: %s", code, out)
		}
		dir := newFolder(t)
		script := filepath.Join(dir, "script")
		if err := os.WriteFile(script, []byte("#!/usr/bin/env bash\necho it works\n"), 0o755); err != nil { //nolint:gosec // it is a program
			t.Fatal(err)
		}
		if out, code := runProgram(t, h, sandbox.Program{Folder: dir}, script); code != 0 || out != "it works\n" {
			t.Errorf("exit code %d: %s", code, out)
		}
	})
}

// TestKillsAllProcesses checks that all processes of a program end with it, also those that left its process group.
func TestKillsAllProcesses(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		_, full := h.DescribeIsolation()
		for _, how := range []string{"", "setsid "} {
			if how != "" && !full {
				continue
			}
			for _, last := range []string{"true", "sleep 600"} {
				dir := newFolder(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				alive := filepath.Join(dir, "alive")
				cmd, err := h.NewCommand(ctx, sandbox.Program{
					File: "/usr/bin/bash", Folder: dir, Any: true, Env: []string{"PATH=" + sandbox.SearchPath},
					Args: []string{"bash", "-c", "for i in 1 2 3; do " + how + "bash -c 'while sleep 0.05; do echo x >>alive; done' & done; until [[ -s alive ]]; do sleep 0.05; done; " + last},
				})
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				if last != "true" {
					go func() {
						for fileSize(alive) == 0 && ctx.Err() == nil {
							time.Sleep(10 * time.Millisecond)
						}
						cancel()
					}()
				}
				_ = cmd.Run()
				sandbox.Kill(cmd)
				if time.Since(start) > 20*time.Second || fileSize(alive) == 0 {
					t.Fatalf("it took %v and wrote %d bytes", time.Since(start), fileSize(alive))
				}
				for before := int64(-1); before != fileSize(alive); { // a process that was killed may still be ending
					if time.Since(start) > 40*time.Second {
						t.Fatalf("%q, %q: something goes on", how, last)
					}
					before = fileSize(alive)
					time.Sleep(400 * time.Millisecond)
				}
			}
		}
	})
}

// TestKillWhileWaiting cancels commands that are about to end, so that Kill runs while another goroutine waits. The race detector
// judges.
func TestKillWhileWaiting(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			cmd, err := h.NewCommand(ctx, sandbox.Program{File: "/usr/bin/true", Args: []string{"true"}, Folder: newFolder(t), Any: true})
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, out) // its end is that of the processes
			cancel()
			_ = cmd.Wait()
			sandbox.Kill(cmd)
		}
	})
}

// fileSize returns the size of a file, 0 if it does not exist.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// TestLimits checks the bounds of a process that no timeout covers.
func TestLimits(t *testing.T) {
	t.Parallel()
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		out, _ := runProgram(t, h, sandbox.Program{CPU: 3 * time.Second}, "bash", "-c", "ulimit -c; ulimit -d; ulimit -n; ulimit -t")
		if want := "0\n2097152\n1024\n4\n"; out != want {
			t.Errorf("limits %q, want %q", out, want)
		}
		if _, full := h.DescribeIsolation(); full {
			if out, _ := runProgram(t, h, sandbox.Program{}, "bash", "-c", "ulimit -u"); out != "512\n" {
				t.Errorf("processes %q", out)
			}
		}
		dir := newFolder(t)
		if _, code := runProgram(t, h, sandbox.Program{Folder: dir}, "truncate", "-s", "1G", "large"); code == 0 {
			t.Error("a file of 1 GiB was written")
		}
	})
}

// TestOwnFiles runs programs in a folder with a file of the server itself. They neither read it nor move or link it; where
// the sandbox cannot hide it, they do not start.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	helper, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := newFolder(t)
	own := filepath.Join(dir, "stoa.secrets")
	if err := os.WriteFile(own, []byte("a secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bubblewrap", "landlock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := sandbox.NewHost(helper, sandbox.Options{ProgramFolders: []string{os.TempDir()}, OwnFiles: []string{own, filepath.Join(dir, "missing")}})
			requireBackend(t, h, name)
			if name == "landlock" {
				_, err := h.NewCommand(t.Context(), sandbox.Program{File: "/bin/cat", Folder: dir})
				if err == nil || !strings.Contains(err.Error(), "is a file of this server's own") {
					t.Errorf("started: %v", err)
				}
				if out, code := runProgram(t, h, sandbox.Program{}, "true"); code != 0 {
					t.Errorf("in another folder: %d, %s", code, out)
				}
				return
			}
			for _, words := range [][]string{{"cat", own}, {"cp", own, "copy"}, {"mv", own, "moved"}, {"rm", "-f", own}, {"ln", own, "linked"}, {"tee", own}} {
				if out, _ := runProgram(t, h, sandbox.Program{Folder: dir, Any: true}, words...); strings.Contains(out, "a secret") {
					t.Errorf("%q prints %q", words, out)
				}
			}
			for _, file := range []string{"copy", "moved", "linked"} {
				if text, err := os.ReadFile(filepath.Join(dir, file)); err == nil && len(text) > 0 {
					t.Errorf("%s holds %q", file, text)
				}
			}
			if text, err := os.ReadFile(own); err != nil || string(text) != "a secret" {
				t.Errorf("the file holds %q (%v)", text, err)
			}
		})
	}
}
