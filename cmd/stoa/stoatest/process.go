// Package stoatest runs stoa as its users do: as processes of their own, that speak over HTTP, log and can be killed.
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

// What every process of a test is given: AdminSecret is the bearer of /admin.
const (
	AdminSecret = "an-admin-secret-of-more-than-32-bytes"
	MasterKey   = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
)

// processTimeout bounds how long a process may take to serve and to end.
const processTimeout = 40 * time.Second

var servingAddress = regexp.MustCompile(`serves at (https?://\S+)`)

// Process is a stoa process.
type Process struct {
	URL string // where it serves
	Cmd *exec.Cmd

	out   outputBuffer
	ended chan struct{}
	err   error // set when ended is closed
}

// outputBuffer keeps what a process says.
type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// LaunchProcess starts program with args in a folder, with env beside the environment of the test. The caller ends it.
func LaunchProcess(program, dir string, env []string, args ...string) (*Process, error) {
	p := &Process{Cmd: exec.Command(program, args...), ended: make(chan struct{})}
	p.Cmd.Dir = dir
	p.Cmd.Stdout, p.Cmd.Stderr = &p.out, &p.out
	p.Cmd.Env = append(os.Environ(), "STOA_ADMIN_SECRET="+AdminSecret, "STOA_MASTER_KEY="+MasterKey)
	p.Cmd.Env = append(p.Cmd.Env, env...)
	if err := p.Cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// AwaitServing waits until the process serves and finds out where.
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

// Output is what the process has said so far.
func (p *Process) Output() string {
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	return p.out.text.String()
}

// Ended is closed when the process has ended.
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

// SignalAndWait sends s, waits for the process to end and returns how it did.
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

// StartServer launches stoa serve at a free port of this machine. It is killed at the end of the test.
func StartServer(t testing.TB, program, dir string, args ...string) *Process {
	t.Helper()
	p, err := LaunchProcess(program, dir, nil, append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.SignalAndWait(syscall.SIGKILL) })
	return p
}

// StartServing is Start, and waits until the process serves.
func StartServing(t testing.TB, program, dir string, args ...string) *Process {
	t.Helper()
	p := StartServer(t, program, dir, args...)
	if err := p.AwaitServing(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}
