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

// flood is how many times what is kept a program may print before it is stopped.
const flood = 64

// Why a program was stopped.
var (
	errTime  = errors.New("its time was over")
	errFlood = errors.New("it printed too much")
)

func (t *Tool) run(ctx context.Context, p program, words []string) (text string, err error) {
	within, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	within, cancel := context.WithTimeoutCause(within, t.opts.Timeout, errTime)
	defer cancel()
	program := sandbox.Program{File: p.file, Args: words, Folder: t.folder, Others: t.lists.others(), CPU: t.opts.Timeout, Untrusted: t.opts.Root != "", Root: t.opts.Root}
	if program.Untrusted {
		if program.Folder, program.Pinned, err = pin(t.opts); err != nil {
			return "", errors.New("the folder is not there any more")
		}
	}
	program.Env = []string{
		"PATH=" + sandbox.Path, "HOME=" + program.Folder, "PWD=" + program.Folder, "TMPDIR=" + program.Folder, "LANG=C.UTF-8", "TERM=dumb",
	}
	cmd, err := t.host.Command(within, program)
	if err != nil {
		return "", err
	}
	out := &output{left: t.opts.MaxOutput, most: t.opts.MaxOutput * flood, full: func() { stop(errFlood) }}
	cmd.Stdout, cmd.Stderr = &stream{o: out}, &stream{o: out}
	err = cmd.Run()
	sandbox.Kill(cmd)
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) && !errors.Is(err, exec.ErrWaitDelay) && within.Err() == nil {
		return "", errors.New("the program could not be started")
	}
	text = told(cmd.Stdout.(*stream)) + labelled("stderr", told(cmd.Stderr.(*stream)))
	switch why := context.Cause(within); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(why, errTime):
		return "", fmt.Errorf("stopped after %v\n%s", t.opts.Timeout, text)
	case errors.Is(why, errFlood):
		return "", fmt.Errorf("stopped because it printed more than %d bytes\n%s", out.most, text)
	case cmd.ProcessState.ExitCode() < 0:
		return "", fmt.Errorf("%s\n%s", cmd.ProcessState, text)
	case !cmd.ProcessState.Success():
		return "", fmt.Errorf("exit code %d\n%s", cmd.ProcessState.ExitCode(), text)
	}
	return "exit code 0\n" + text, nil
}

func labelled(name, text string) string {
	if text == "" {
		return ""
	}
	return "[" + name + "]\n" + text
}

// output keeps the beginning of what a program prints, and counts the rest.
type output struct {
	mu    sync.Mutex
	left  int // bytes that are still kept
	total int
	most  int    // bytes that may be printed
	full  func() // is told when there are more
}

// stream is standard output or standard error.
type stream struct {
	o     *output
	kept  strings.Builder
	total int
}

var _ io.Writer = (*stream)(nil)

// Write keeps what there is room for. It never fails, since that would break the program's pipe.
func (s *stream) Write(p []byte) (int, error) {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	n := min(len(p), s.o.left)
	s.kept.Write(p[:n])
	s.o.left -= n
	s.total += len(p)
	if s.o.total += len(p); s.o.total > s.o.most {
		s.o.full()
	}
	return len(p), nil
}

// told is what was kept of s, with a note if that is not all.
func told(s *stream) string {
	s.o.mu.Lock()
	defer s.o.mu.Unlock()
	text := s.kept.String()
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if s.total > s.kept.Len() {
		text += fmt.Sprintf("[cut here: these are the first %d of %d bytes]\n", s.kept.Len(), s.total)
	}
	return text
}
