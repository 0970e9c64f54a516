package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"

	"stoa/agentsvc/sandbox"
)

// maxOutputFactor is the output at which a program is stopped, as a multiple of MaxOutput.
const maxOutputFactor = 64

// Causes with which a program is stopped.
var (
	errTimeout     = errors.New("its time was over")
	errOutputLimit = errors.New("it printed too much")
)

// runProgram runs a program in the sandbox and returns its exit code and output. The environment holds nothing of this
// process's. stdout and stderr share one limit.
func (t *Tool) runProgram(ctx context.Context, p program, words []string) (text string, err error) {
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	within, cancel := context.WithTimeoutCause(within, t.opts.Timeout, errTimeout)
	defer cancel()
	program := sandbox.Program{File: p.realPath, Args: words, Folder: t.folder, Others: t.lists.allowedFiles(), CPU: t.opts.Timeout, Untrusted: t.opts.Root != "", Root: t.opts.Root}
	// A tenant's folder may have changed since the tool was built: it is pinned again for this run.
	if program.Untrusted {
		if program.Folder, program.Pinned, err = pinFolder(t.opts); err != nil {
			return "", errors.New("the folder no longer exists")
		}
	}
	// HOME and TMPDIR are the folder, the only place that the program can write.
	program.Env = []string{
		"PATH=" + sandbox.SearchPath, "HOME=" + program.Folder, "PWD=" + program.Folder, "TMPDIR=" + program.Folder, "LANG=C.UTF-8", "TERM=dumb",
	}
	cmd, err := t.host.NewCommand(within, program)
	if err != nil {
		return "", err
	}
	out := &outputLimiter{remaining: t.opts.MaxOutput, maxTotal: t.opts.MaxOutput * maxOutputFactor, onExceeded: func() { stop(errOutputLimit) }}
	// Two streams, so that stderr can be labelled, with one limit for both.
	cmd.Stdout, cmd.Stderr = &outputStream{limiter: out}, &outputStream{limiter: out}
	err = cmd.Run()
	// Processes that the program left behind end with the call.
	sandbox.Kill(cmd)
	var exited *exec.ExitError
	// The error of a failed start may quote the sandbox's command line.
	if err != nil && !errors.As(err, &exited) && !errors.Is(err, exec.ErrWaitDelay) && within.Err() == nil {
		return "", errors.New("the program could not be started")
	}
	text = formatOutput(cmd.Stdout.(*outputStream)) + labelOutput("stderr", formatOutput(cmd.Stderr.(*outputStream)))
	// The order matters: the end of the caller's context also ends within.
	switch cause := context.Cause(within); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(cause, errTimeout):
		return "", fmt.Errorf("stopped after %v\n%s", t.opts.Timeout, text)
	case errors.Is(cause, errOutputLimit):
		return "", fmt.Errorf("stopped because it printed more than %d bytes\n%s", out.maxTotal, text)
	// Ended by a signal, e.g. for using too much memory.
	case cmd.ProcessState.ExitCode() < 0:
		return "", fmt.Errorf("%s\n%s", cmd.ProcessState, text)
	case !cmd.ProcessState.Success():
		return "", fmt.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), text)
	}
	return "exit code 0\n" + text, nil
}

// labelOutput returns text under a label, "" for no text.
func labelOutput(name, text string) string {
	if text == "" {
		return ""
	}
	return "[" + name + "]\n" + text
}

// outputLimiter is the shared limit of both outputs of a program.
type outputLimiter struct {
	mu sync.Mutex
	// mu guards remaining, total and the streams. remaining is the number of bytes that may still be stored.
	remaining int
	total     int
	// maxTotal is the number of bytes after which onExceeded is called, with mu locked.
	maxTotal   int
	onExceeded func()
}

// outputStream stores the beginning of standard output or standard error and counts the rest.
type outputStream struct {
	limiter *outputLimiter
	buffer  strings.Builder
	total   int
}

var _ io.Writer = (*outputStream)(nil)

// Write implements [io.Writer]. It never fails: an error would break the program's pipe.
func (s *outputStream) Write(p []byte) (int, error) {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	// Beyond the limit output is counted, not stored.
	n := min(len(p), s.limiter.remaining)
	s.buffer.Write(p[:n])
	s.limiter.remaining -= n
	s.total += len(p)
	if s.limiter.total += len(p); s.limiter.total > s.limiter.maxTotal {
		s.limiter.onExceeded()
	}
	return len(p), nil
}

// formatOutput returns the stored output, with a note if it is not complete.
func formatOutput(s *outputStream) string {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	text := s.buffer.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if s.total > s.buffer.Len() {
		text += fmt.Sprintf("[cut here: these are the first %d of %d bytes]\n", s.buffer.Len(), s.total)
	}
	return text
}
