package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"stoa/agentsvc/sandbox"
)

// Programs of the tests below run for programTime, so that one that is left behind is found, and is gone an hour later.
const programTime = "3600"

// serverVariable is the environment variable that makes a process of this binary a server: it has the name of a sandbox,
// and the server starts a program in the folder that is its working directory.
const serverVariable = "STOA_TEST_SANDBOX_SERVER"

// runServer is the main of a process that a test starts as a server and kills. It does nothing without serverVariable.
func runServer() {
	name := os.Getenv(serverVariable)
	if name == "" {
		return
	}
	folder, err := os.Getwd()
	if err != nil {
		os.Exit(1)
	}
	helper, err := os.Executable()
	if err != nil {
		os.Exit(1)
	}
	h := sandbox.NewHost(helper, sandbox.Options{})
	if !sandbox.ForceBackend(h, name) {
		os.Exit(1)
	}
	_, _ = os.Stdout.WriteString("ready")
	if cmd, err := newSleeper(context.Background(), h, folder); err == nil {
		_ = cmd.Run()
	}
	os.Exit(0)
}

// newSleeper returns the command of a program that runs for programTime in folder. The environment of each of its processes
// contains the folder.
func newSleeper(ctx context.Context, h *sandbox.Host, folder string) (*exec.Cmd, error) {
	file, err := filepath.EvalSymlinks(sandbox.FindProgram("sleep"))
	if err != nil {
		return nil, err
	}
	return h.NewCommand(ctx, sandbox.Program{
		File: file, Args: []string{"sleep", programTime}, Env: []string{"FOLDER=" + folder}, Folder: folder, Untrusted: h.CheckUntrusted() == nil,
	})
}

// requireNoProcess fails the test if there are processes with text in their environment a minute later still.
func requireNoProcess(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := findProcesses(t, text)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, p := range left {
				t.Errorf("process %d goes on: %s", p.Pid, describeProcess(p))
				_ = p.Kill()
			}
			return
		}
	}
}

// findProcesses returns the processes of this machine that have text in their environment.
func findProcesses(t *testing.T, text string) (found []*os.Process) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		environment, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environment, []byte(text)) {
			continue // it has ended, or is not of this test
		}
		var pid int
		for _, digit := range filepath.Base(filepath.Dir(file)) {
			pid = 10*pid + int(digit-'0')
		}
		if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
			found = append(found, p)
		}
	}
	return found
}

// describeProcess returns the name and the state of a process.
func describeProcess(p *os.Process) string {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Pid), "status"))
	if err != nil {
		return err.Error()
	}
	name, _, _ := bytes.Cut(status, []byte("\nTgid"))
	return string(bytes.ReplaceAll(name, []byte("\n"), []byte(" ")))
}

// Moments at which a program's first process, or its server, is killed: each killStep later than the one before. Together they
// are longer than a program takes to start.
const (
	killMoments = 40
	killStep    = 750 * time.Microsecond
)

// TestKilledWhileStarting kills the first process of a program at many moments of its start, as the kernel does when
// memory runs out: no process of the program may be left, whether or not the caller then calls Kill.
func TestKilledWhileStarting(t *testing.T) {
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		alone := endsAlone(h)
		folder := newFolder(t)
		for i := range killMoments {
			cmd, err := newSleeper(t.Context(), h, folder)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wait(time.Duration(i) * killStep)
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			if alone && i%2 != 0 {
				defer sandbox.Kill(cmd) // removes the control group, after the processes were counted
			} else {
				sandbox.Kill(cmd)
			}
		}
		requireNoProcess(t, folder)
	})
}

// endsAlone reports whether the programs of a sandbox end with their first process, without a call of Kill.
func endsAlone(h *sandbox.Host) bool {
	name, _ := h.DescribeIsolation()
	return name == "bubblewrap" || name == "landlock"
}

// TestServerKilled kills a server at many moments of a program's start: no process of the program may be left, though there is no
// caller that calls Kill.
func TestServerKilled(t *testing.T) {
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		if !endsAlone(h) {
			return // the kernel cannot end the program's processes together
		}
		executable, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		name, _ := h.DescribeIsolation()
		folder := newFolder(t)
		for i := range killMoments / 2 {
			server := exec.Command(executable)
			server.Dir, server.Env = folder, append(os.Environ(), serverVariable+"="+name)
			output, err := server.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := server.Start(); err != nil {
				t.Fatal(err)
			}
			if n, _ := output.Read(make([]byte, 1)); n == 0 {
				t.Fatal("the server did not start")
			}
			wait(time.Duration(i) * 2 * killStep)
			_ = server.Process.Kill()
			_ = server.Wait()
		}
		requireNoProcess(t, folder)
	})
}

// TestServerEndsBeforeAnswer has a server that ends instead of answering the helper: the program does not start.
func TestServerEndsBeforeAnswer(t *testing.T) {
	forEachSandbox(t, func(t *testing.T, h *sandbox.Host) {
		folder := newFolder(t)
		touch, err := filepath.EvalSymlinks(sandbox.FindProgram("touch"))
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := h.NewCommand(t.Context(), sandbox.Program{File: touch, Args: []string{"touch", "made"}, Folder: folder})
		if err != nil {
			t.Fatal(err)
		}
		defer sandbox.Kill(cmd)
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		server, helper := os.NewFile(uintptr(fds[0]), "server"), os.NewFile(uintptr(fds[1]), "helper")
		cmd.ExtraFiles = []*os.File{helper}
		err = errors.Join(cmd.Start(), helper.Close())
		if n, readErr := server.Read(make([]byte, 100)); err != nil || n != 1 {
			t.Errorf("the helper asked with %d bytes: %v, %v", n, err, readErr)
		}
		_ = server.Close()
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 126 {
			t.Errorf("the program ended with %v", err)
		}
		if _, err := os.Stat(filepath.Join(folder, "made")); !errors.Is(err, os.ErrNotExist) {
			t.Error("the program was started")
		}
	})
}

// wait waits for d. It does not sleep, since a sleep of less than a millisecond is not exact.
func wait(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}
