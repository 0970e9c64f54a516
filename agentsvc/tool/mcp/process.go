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
	graceClosed = time.Second
	graceTerm   = time.Second
)

// errFlood says that a program printed without being asked.
var errFlood = errors.New("it printed too much")

// process is a server's program at work. Reading it reads what it prints, writing it writes its input, closing it
// ends it and all programs it has started.
type process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	folder string       // its own, "" = none
	most   int64        // bytes it may print between two calls
	left   atomic.Int64 // and how many of them it still may

	once sync.Once
	quit atomic.Bool            // it stopped printing before it was closed
	how  atomic.Pointer[string] // it ended
}

// start runs the server's program in a process group of its own, with nothing of this process's environment.
func start(o Options) (*process, error) {
	env := map[string]string{"PATH": sandbox.Path}
	for name, value := range o.Env {
		env[name] = value
	}
	program, err := find(o.Command, env["PATH"])
	if err != nil {
		return nil, err
	}
	p := &process{most: int64(o.MaxMessage) * maxUnasked, cmd: &exec.Cmd{Path: program, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, WaitDelay: graceTerm}}
	p.cmd.Args = append([]string{program}, o.Args...)
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	if o.Sandbox != nil {
		if err := p.confine(o); err != nil {
			return nil, err
		}
	}
	p.asked()
	if err := p.run(); err != nil {
		sandbox.Kill(p.cmd)
		p.clean()
		return nil, &unreachable{why: "its program cannot be started", cause: err}
	}
	return p, nil
}

// confine puts the program into a sandbox with an empty folder of its own.
func (p *process) confine(o Options) error {
	if err := o.Sandbox.Untrusted(); err != nil {
		return &unreachable{why: "this host has no sandbox to hold its program", cause: err}
	}
	folder, err := os.MkdirTemp("", "stoa-mcp")
	if err == nil {
		p.folder = folder
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err == nil {
		err = o.Sandbox.Give(folder)
	}
	var file string
	if err == nil {
		file, err = filepath.EvalSymlinks(p.cmd.Path)
	}
	if err == nil {
		p.cmd, err = o.Sandbox.Command(context.Background(), sandbox.Program{
			File: file, Args: p.cmd.Args, Env: p.cmd.Env, Folder: folder, Any: true, Network: o.Network, Untrusted: true,
		})
	}
	if err != nil {
		p.clean()
		return &unreachable{why: "its program cannot be held by the sandbox", cause: err}
	}
	return nil
}

func (p *process) run() (err error) {
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return err
	}
	return p.cmd.Start()
}

// clean removes what the program could write.
func (p *process) clean() {
	if p.folder != "" {
		_ = os.RemoveAll(p.folder)
	}
}

// find returns the path of a program. Names are looked up in path, not in this process's own.
func find(name, path string) (string, error) {
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
	return "", &unreachable{why: "its program was not found", cause: &exec.Error{Name: name, Err: exec.ErrNotFound}}
}

// Read reads what the program prints.
func (p *process) Read(b []byte) (int, error) {
	n, err := p.out.Read(b)
	if errors.Is(err, io.EOF) {
		p.quit.Store(true)
	}
	if p.left.Add(int64(-n)) < 0 {
		return 0, errFlood
	}
	return n, err
}

// Write writes to the program's input.
func (p *process) Write(b []byte) (int, error) { return p.in.Write(b) }

// asked lets the program print again.
func (p *process) asked() { p.left.Store(p.most) }

// Close closes the program's input and waits for its end; if that does not come, it is asked to end, and then killed.
// What the program has started ends with it.
func (p *process) Close() error {
	p.once.Do(func() {
		_ = p.in.Close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = p.cmd.Wait()
			how := p.cmd.ProcessState.String()
			p.how.Store(&how)
		}()
		if !within(done, graceClosed) {
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
			within(done, graceTerm)
		}
		sandbox.Kill(p.cmd) // and what is left of its group
		<-done
		sandbox.Kill(p.cmd) // which can be removed now
		p.clean()
	})
	return nil
}

// ended says how a program that ended by itself did so, "" for any other.
func (p *process) ended() string {
	how := p.how.Load()
	if how == nil || !p.quit.Load() {
		return ""
	}
	return "its program ended: " + *how
}

func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
