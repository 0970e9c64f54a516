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

// patience bounds how long a process may take to serve and to end.
const patience = 40 * time.Second

var servesAt = regexp.MustCompile(`serves at (https?://\S+)`)

// Process is a stoa process.
type Process struct {
	URL string // where it serves
	Cmd *exec.Cmd

	out   output
	ended chan struct{}
	err   error // set when ended is closed
}

// output keeps what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// Launch starts program with args in a folder, with env beside the environment of the test. The caller ends it.
func Launch(program, dir string, env []string, args ...string) (*Process, error) {
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

// Serving waits until the process serves and finds out where.
func (p *Process) Serving(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if m := servesAt.FindStringSubmatch(p.Output()); m != nil {
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

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// End sends s, waits for the process to end and returns how it did.
func (p *Process) End(s syscall.Signal) error {
	if err := p.Cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return p.err
	case <-time.After(patience):
		return fmt.Errorf("the process does not end on %v:\n%s", s, p.Output())
	}
}

// Start launches stoa serve at a free port of this machine. It is killed at the end of the test.
func Start(t testing.TB, program, dir string, args ...string) *Process {
	t.Helper()
	p, err := Launch(program, dir, nil, append([]string{"serve", "--host", "127.0.0.1", "--port", "0"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.End(syscall.SIGKILL) })
	return p
}

// Serve is Start, and waits until the process serves.
func Serve(t testing.TB, program, dir string, args ...string) *Process {
	t.Helper()
	p := Start(t, program, dir, args...)
	if err := p.Serving(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}
