package mcp

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"stoa/agentsvc/sandbox"
)

// How long a program may take to end once its input is closed, and once it was asked to end.
const (
	closeTimeout = time.Second
	termTimeout  = time.Second
)

// errOutputLimit says that a program printed without being asked.
var errOutputLimit = errors.New("it printed too much")

// process is a server's program at work. Reading it reads what it prints, writing it writes its input, closing it
// ends it and all programs it has started.
type process struct {
	cmd             *exec.Cmd
	stdin           io.WriteCloser
	stdout          io.ReadCloser
	folder          string       // its own, "" = none
	outputLimit     int64        // bytes it may print between two calls
	remainingOutput atomic.Int64 // and how many of them it still may

	closeOnce   sync.Once
	outputEnded atomic.Bool            // it stopped printing before it was closed
	exitState   atomic.Pointer[string] // it ended
}

// startProcess runs the server's program in a process group of its own, with nothing of this process's environment.
func startProcess(o Options) (*process, error) {
	env := map[string]string{"PATH": sandbox.SearchPath}
	for name, value := range o.Env {
		env[name] = value
	}
	program, err := findProgram(o.Command, env["PATH"])
	if err != nil {
		return nil, err
	}
	p := &process{outputLimit: int64(o.MaxMessage) * maxUnsolicited, cmd: &exec.Cmd{Path: program, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, WaitDelay: termTimeout}}
	p.cmd.Args = append([]string{program}, o.Args...)
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	if o.Sandbox != nil {
		if err := p.confineToSandbox(o); err != nil {
			return nil, err
		}
	}
	p.resetOutputLimit()
	if err := p.startCommand(); err != nil {
		sandbox.Kill(p.cmd)
		p.removeFolder()
		return nil, &unavailableError{reason: "its program cannot be started", cause: err}
	}
	return p, nil
}

// confineToSandbox puts the program into a sandbox with an empty folder of its own.
func (p *process) confineToSandbox(o Options) error {
	if err := o.Sandbox.CheckUntrusted(); err != nil {
		return &unavailableError{reason: "this host has no sandbox to hold its program", cause: err}
	}
	folder, err := os.MkdirTemp("", "stoa-mcp")
	if err == nil {
		p.folder = folder
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err == nil {
		err = o.Sandbox.ChownFolder(folder)
	}
	var file string
	if err == nil {
		file, err = filepath.EvalSymlinks(p.cmd.Path)
	}
	if err == nil {
		p.cmd, err = o.Sandbox.NewCommand(context.Background(), sandbox.Program{
			File: file, Args: p.cmd.Args, Env: p.cmd.Env, Folder: folder, Any: true, Network: o.AllowNetwork, Untrusted: true,
		})
	}
	if err != nil {
		p.removeFolder()
		return &unavailableError{reason: "its program cannot be held by the sandbox", cause: err}
	}
	return nil
}

func (p *process) startCommand() (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// removeFolder removes what the program could write.
func (p *process) removeFolder() {
	if p.folder != "" {
		_ = os.RemoveAll(p.folder)
	}
}

// findProgram returns the path of a program. Names are looked up in path, not in this process's own.
func findProgram(name, path string) (string, error) {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, dir := range filepath.SplitList(path) {
			if filepath.IsAbs(dir) {
				candidates = append(candidates, filepath.Join(dir, name))
			}
		}
	}
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return filepath.Abs(c)
		}
	}
	return "", &unavailableError{reason: "its program was not found", cause: &exec.Error{Name: name, Err: exec.ErrNotFound}}
}

// Read reads what the program prints.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.stdout.Read(b)
	if errors.Is(err, io.EOF) {
		p.outputEnded.Store(true)
	}
	if p.remainingOutput.Add(int64(-n)) < 0 {
		return 0, errOutputLimit
	}
	return n, err
}

// Write writes to the program's input.
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// resetOutputLimit lets the program print again.
func (p *process) resetOutputLimit() { p.remainingOutput.Store(p.outputLimit) }

// Close closes the program's input and waits for its end; if that does not come, it is asked to end, and then killed.
// What the program has started ends with it.
func (p *process) Close() error {
	p.closeOnce.Do(func() {
		_ = p.stdin.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = p.cmd.Wait()
			exitState := p.cmd.ProcessState.String()
			p.exitState.Store(&exitState)
		}()
		if !waitDone(done, closeTimeout) {
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
			waitDone(done, termTimeout)
		}
		sandbox.Kill(p.cmd) // and what is left of its group
		<-done
		sandbox.Kill(p.cmd) // which can be removed now
		p.removeFolder()
	})
	return nil
}

// exitReason says how a program that ended by itself did so, "" for any other.
func (p *process) exitReason() string {
	exitState := p.exitState.Load()
	if exitState == nil || !p.outputEnded.Load() {
		return ""
	}
	return "its program ended: " + *exitState
}

func waitDone(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
