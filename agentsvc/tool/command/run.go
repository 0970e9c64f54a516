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

// maxOutputFactor is how many times what is kept a program may print before it is stopped.
const maxOutputFactor = 64

// Why a program was stopped.
var (
	errTimeout     = errors.New("its time was over")
	errOutputLimit = errors.New("it printed too much")
)

func (t *Tool) runProgram(ctx context.Context, p program, words []string) (text string, err error) {
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	within, cancel := context.WithTimeoutCause(within, t.opts.Timeout, errTimeout)
	defer cancel()
	program := sandbox.Program{File: p.realPath, Args: words, Folder: t.folder, Others: t.lists.allowedFiles(), CPU: t.opts.Timeout, Untrusted: t.opts.Root != "", Root: t.opts.Root}
	if program.Untrusted {
		if program.Folder, program.Pinned, err = pinFolder(t.opts); err != nil {
			return "", errors.New("the folder is not there any more")
		}
	}
	program.Env = []string{
		"PATH=" + sandbox.SearchPath, "HOME=" + program.Folder, "PWD=" + program.Folder, "TMPDIR=" + program.Folder, "LANG=C.UTF-8", "TERM=dumb",
	}
	cmd, err := t.host.NewCommand(within, program)
	if err != nil {
		return "", err
	}
	out := &outputLimiter{remaining: t.opts.MaxOutput, maxTotal: t.opts.MaxOutput * maxOutputFactor, onExceeded: func() { stop(errOutputLimit) }}
	cmd.Stdout, cmd.Stderr = &outputStream{limiter: out}, &outputStream{limiter: out}
	err = cmd.Run()
	sandbox.Kill(cmd)
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) && !errors.Is(err, exec.ErrWaitDelay) && within.Err() == nil {
		return "", errors.New("the program could not be started")
	}
	text = formatOutput(cmd.Stdout.(*outputStream)) + labelOutput("stderr", formatOutput(cmd.Stderr.(*outputStream)))
	switch cause := context.Cause(within); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(cause, errTimeout):
		return "", fmt.Errorf("stopped after %v\n%s", t.opts.Timeout, text)
	case errors.Is(cause, errOutputLimit):
		return "", fmt.Errorf("stopped because it printed more than %d bytes\n%s", out.maxTotal, text)
	case cmd.ProcessState.ExitCode() < 0:
		return "", fmt.Errorf("%s\n%s", cmd.ProcessState, text)
	case !cmd.ProcessState.Success():
		return "", fmt.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), text)
	}
	return "exit code 0\n" + text, nil
}

func labelOutput(name, text string) string {
	if text == "" {
		return ""
	}
	return "[" + name + "]\n" + text
}

// outputLimiter keeps the beginning of what a program prints, and counts the rest.
type outputLimiter struct {
	mu         sync.Mutex
	remaining  int // bytes that are still kept
	total      int
	maxTotal   int    // bytes that may be printed
	onExceeded func() // is told when there are more
}

// outputStream is standard output or standard error.
type outputStream struct {
	limiter *outputLimiter
	buffer  strings.Builder
	total   int
}

var _ io.Writer = (*outputStream)(nil)

// Write keeps what there is room for. It never fails, since that would break the program's pipe.
func (s *outputStream) Write(p []byte) (int, error) {
	s.limiter.mu.Lock()
	defer s.limiter.mu.Unlock()
	n := min(len(p), s.limiter.remaining)
	s.buffer.Write(p[:n])
	s.limiter.remaining -= n
	s.total += len(p)
	if s.limiter.total += len(p); s.limiter.total > s.limiter.maxTotal {
		s.limiter.onExceeded()
	}
	return len(p), nil
}

// formatOutput is what was kept of s, with a note if that is not all.
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
