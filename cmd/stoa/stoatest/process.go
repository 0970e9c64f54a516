// Package stoatest runs stoa as its users do: as separate processes that serve HTTP, write a log and can be killed.
// It also has bodies that are built to exhaust a server's memory (attack.go). The tests of cmd/stoa and its fault
// tests share it.
//
// [StartServing] starts a server for a test and returns a [Process] with its URL; [LaunchProcess] starts any command
// for callers without a test.
package stoatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// AdminSecret and MasterKey are the secrets of every process of a test. AdminSecret is the bearer token of the admin
// API.
const (
	AdminSecret = "an-admin-secret-of-more-than-32-bytes"
	MasterKey   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// processTimeout bounds how long a process may take to start serving, and to end after a signal.
const processTimeout = 40 * time.Second

// servingAddress matches the line with which stoa serve reports its URL.
var servingAddress = regexp.MustCompile(`serves at (https?://[^\s"]+)`)

// Process is a stoa process.
type Process struct {
	URL string // where it serves; set by AwaitServing
	Cmd *exec.Cmd

	// out is written by the process's pipe and read by the test, so that it has a lock of its own.
	out   outputBuffer
	ended chan struct{} // closed when the process has ended
	err   error         // result of Wait; valid once ended is closed
}

// outputBuffer collects the output of a process.
type outputBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements [io.Writer].
func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// passedVariables are the variables of a test's environment that its processes get: where programs and temporary files
// are, and how Go's runtime reports.
var passedVariables = []string{"PATH", "HOME", "TMPDIR", "GORACE", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR"}

// Environment returns the environment of a process that a test starts: the secrets, then env. Of the test's own
// environment it has passedVariables alone. Its other variables would be settings of the program (STOA_*, OTEL_*, PG*, the
// API keys of models).
func Environment(env ...string) []string {
	var all []string
	for _, name := range passedVariables {
		if value, ok := os.LookupEnv(name); ok {
			all = append(all, name+"="+value)
		}
	}
	return append(append(all, "STOA_ADMIN_SECRET="+AdminSecret, "STOA_MASTER_KEY="+MasterKey), env...)
}

// LaunchProcess starts program with args in the folder dir, with the [Environment] that has env. The caller must end the
// process.
func LaunchProcess(program, dir string, env []string, args ...string) (*Process, error) {
	p := &Process{Cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.Cmd.Dir = dir
	p.Cmd.Stdout, p.Cmd.Stderr = &p.out, &p.out
	p.Cmd.Env = Environment(env...)
	if err := p.Cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// AwaitServing waits until the process reports that it serves and sets URL. It returns an error with the process's
// output if the process ends first, if ctx ends, or after processTimeout.
func (p *Process) AwaitServing(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	for {
		if m := servingAddress.FindStringSubmatch(p.Output()); m != nil {
			p.URL = m[1]
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("stoa serve ended: %w\n%s", errors.Join(p.err, errors.New("it does not serve")), p.Output())
		case <-ctx.Done():
			return fmt.Errorf("stoa serve does not serve: %w\n%s", ctx.Err(), p.Output())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Output returns the output of the process so far, standard output and standard error together.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.text.String()
}

// Ended returns a channel that is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// IsAlive reports whether the process has not ended.
func (p *Process) IsAlive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// SignalAndWait sends s, waits until the process has ended and returns the error of its exit. A process that has
// already ended is not an error.
func (p *Process) SignalAndWait(s syscall.Signal) error {
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return p.err
	case <-time.After(processTimeout):
		return fmt.Errorf("the process does not end on %v:\n%s", s, p.Output())
	}
}

// StartServer starts stoa serve on a free port of this machine. The process is killed at the end of the test.
func StartServer(t testing.TB, program, dir string, args ...string) *Process {
	t.Helper()
	p, err := LaunchProcess(program, dir, nil, append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.SignalAndWait(syscall.SIGKILL) })
	return p
}

// StartServing is StartServer and waits until the process serves.
func StartServing(t testing.TB, program, dir string, args ...string) *Process {
	t.Helper()
	p := StartServer(t, program, dir, args...)
	if err := p.AwaitServing(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}
