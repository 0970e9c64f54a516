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
	"stoa/agentsvc/temporary"
)

// closeTimeout and termTimeout bound how long a program may take to end after its input was closed, and after SIGTERM.
const (
	closeTimeout = time.Second
	termTimeout  = time.Second
)

// errOutputLimit reports that a program printed too much without a request.
var errOutputLimit = errors.New("it printed too much")

// process is a running server program. Read reads its standard output, Write writes its standard input, Close ends it
// and all programs that it started.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	// folder is the temporary folder of a sandboxed program, nil = none.
	folder *temporary.Folder
	// outputLimit is the number of bytes that the program may print between two requests; remainingOutput is what is
	// left.
	outputLimit     int64
	remainingOutput atomic.Int64

	// outputEnded and exitState together distinguish a program that ended by itself from one that Close ended.
	closeOnce   sync.Once
	outputEnded atomic.Bool
	exitState   atomic.Pointer[string]
}

// startProcess starts the server's program in a process group of its own, so that Close can end its children too, and
// with none of this process's environment.
func startProcess(o Options) (*process, error) {
	// The configured PATH, if any, replaces the default one.
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
	// Kill also releases what the sandbox prepared for the command.
	if err := p.startCommand(); err != nil {
		sandbox.Kill(p.cmd)
		p.removeFolder()
		return nil, &unavailableError{reason: "its program cannot be started", cause: err}
	}
	return p, nil
}

// confineToSandbox replaces the command by one that runs in the sandbox, with an empty temporary folder as its only
// writable one.
func (p *process) confineToSandbox(o Options) error {
	// Without a working sandbox the program must not run.
	if err := o.Sandbox.CheckUntrusted(); err != nil {
		return &unavailableError{reason: "this host has no sandbox for its program", cause: err}
	}
	folder, err := temporary.MakeFolder("mcp")
	if err == nil {
		p.folder = folder
		err = o.Sandbox.ChownFolder(folder.Path)
	}
	var file string
	if err == nil {
		file, err = filepath.EvalSymlinks(p.cmd.Path)
	}
	if err == nil {
		p.cmd, err = o.Sandbox.NewCommand(context.Background(), sandbox.Program{
			File: file, Args: p.cmd.Args, Env: p.cmd.Env, Folder: folder.Path, Any: true, Network: o.AllowNetwork, Untrusted: true,
		})
	}
	if err != nil {
		p.removeFolder()
		return &unavailableError{reason: "its program cannot be started in the sandbox", cause: err}
	}
	return nil
}

// startCommand opens the pipes and starts the program.
func (p *process) startCommand() (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// removeFolder removes the temporary folder.
func (p *process) removeFolder() {
	if p.folder != nil {
		_ = p.folder.Remove()
	}
}

// findProgram returns the absolute path of an executable file. A name without a slash is looked up in path, not in the
// PATH of this process.
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

// Read implements [io.Reader]. It fails when the program exceeds its output limit, which closes the connection.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.stdout.Read(b)
	if errors.Is(err, io.EOF) {
		p.outputEnded.Store(true)
	}
	// Bounds what the client library would buffer of unsolicited messages.
	if p.remainingOutput.Add(int64(-n)) < 0 {
		return 0, errOutputLimit
	}
	return n, err
}

// Write implements [io.Writer].
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// resetOutputLimit lets the program print outputLimit bytes again.
func (p *process) resetOutputLimit() { p.remainingOutput.Store(p.outputLimit) }

// Close closes the program's input and waits for its end. After closeTimeout it sends SIGTERM to the process group,
// after termTimeout SIGKILL. It always returns nil, and waits for the program's end each time.
func (p *process) Close() error {
	p.closeOnce.Do(func() {
		_ = p.stdin.Close()
		done := make(chan struct{})
		// Wait also reads exitState, for exitReason.
		go func() {
			defer close(done)
			_ = p.cmd.Wait()
			exitState := p.cmd.ProcessState.String()
			p.exitState.Store(&exitState)
		}()
		// MCP programs end when their input is closed (MCP specification, stdio shutdown); only others are signalled.
		if !waitDone(done, closeTimeout) {
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
			waitDone(done, termTimeout)
		}
		sandbox.Kill(p.cmd) // the rest of the process group
		<-done
		sandbox.Kill(p.cmd) // again after Wait: now the sandbox's remains can be removed
		p.removeFolder()
	})
	return nil
}

// exitReason returns how a program ended by itself, "" for one that did not.
func (p *process) exitReason() string {
	exitState := p.exitState.Load()
	if exitState == nil || !p.outputEnded.Load() {
		return ""
	}
	return "its program ended: " + *exitState
}

// waitDone reports whether done is closed within d.
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
