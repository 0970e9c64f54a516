// Package proc starts the servers that are measured, stops them, and reads from /proc what they cost.
// It works on Linux only.
package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// stopTimeout is how long a process may take to end after SIGTERM before it is killed.
const stopTimeout = 15 * time.Second

// ErrEnded is returned while waiting for a process that ended by itself.
var ErrEnded = errors.New("the process ended")

// Command says what to start.
type Command struct {
	Path string
	Args []string
	Env  []string // the whole environment
	Dir  string   // working directory
	Log  string   // file for both outputs; it is appended to
}

// Process is a running server.
type Process struct {
	cmd   *exec.Cmd
	log   string
	start time.Time
	ended chan struct{}
}

// Start runs c until [Process.Stop]. It is killed when the bench itself dies.
func Start(c Command) (*Process, error) {
	out, err := os.OpenFile(c.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.Env, c.Dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &Process{cmd: cmd, log: c.Log, start: time.Now(), ended: make(chan struct{})}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(c.Path), err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Log is the file with the process's output.
func (p *Process) Log() string { return p.log }

// Stop asks the process to end, waits, and kills it if it takes too long. Stopping an ended process does nothing.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// Ready waits for the first 200 on url and returns the time since the start.
func (p *Process) Ready(ctx context.Context, url string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if answers(ctx, client, url) {
			return time.Since(p.start), nil
		}
		select {
		case <-p.ended:
			return 0, fmt.Errorf("%s: %w before it was ready: %s", filepath.Base(p.cmd.Path), ErrEnded, tail(p.log))
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for %s: %w: %s", url, ctx.Err(), tail(p.log))
		case <-tick.C:
		}
	}
}

func answers(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// tail is the end of a log, for an error's text.
func tail(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(raw[max(0, len(raw)-600):]))
}

// FreePort is a TCP port of the loopback address that had no listener a moment ago.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
