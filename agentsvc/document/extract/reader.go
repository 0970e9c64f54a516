package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"stoa/agentsvc/document"
	"stoa/agentsvc/processor"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/temporary"
)

// Bounds of what the server gives a helper and takes from it.
const (
	// readTimeout is how long a helper may read one file; also the processor time that it may use.
	readTimeout = 30 * time.Second
	// probeTimeout bounds the test whether a helper runs as another user.
	probeTimeout = 10 * time.Second
	// helpersAtOnce is how many helpers run at a time in this process: each may have maxHeapBytes.
	helpersAtOnce = 2
	// maxPlainBytes is the size of the largest plain text that the server reads itself.
	maxPlainBytes = 1 << 20
	// maxReplyBytes bounds what a helper writes: text within its limit, twice for escaped characters, and the names
	// around it.
	maxReplyBytes = 64 << 20
	// maxStderrBytes is how much of a helper's standard error is kept, to recognise the end of its memory.
	maxStderrBytes = 4 << 10
	// maxMessage bounds the message about a problem, in bytes.
	maxMessage = 500
)

// Reader reads files in helper processes, short plain text by itself. It is safe for concurrent use: at most helpersAtOnce helpers run, further
// calls wait, and apps get their turn one after the other.
type Reader struct {
	executable string
	host       *sandbox.Host
	slots      *processor.Semaphore
	untrusted  func() bool // sync.OnceValue of canRunUntrusted

	// Tests replace these.
	variable string                          // the value of HelperVariable
	timeout  time.Duration                   // readTimeout
	started  func(app string, p *os.Process) // gets each helper
}

// NewReader returns a reader whose helpers are confined by host. executable is the path of this executable, whose main
// begins with [sandbox.RunHelper] and [RunHelper].
func NewReader(executable string, host *sandbox.Host) (*Reader, error) {
	executable, err := filepath.EvalSymlinks(executable) // rules of the sandbox apply to the resolved path
	if err != nil {
		return nil, fmt.Errorf("find the program that reads files: %w", err)
	}
	r := &Reader{executable: executable, host: host, slots: processor.NewPermits(helpersAtOnce), variable: "1", timeout: readTimeout, started: func(string, *os.Process) {}}
	r.untrusted = sync.OnceValue(r.canRunUntrusted)
	return r, nil
}

// Read reads a file of app of at most [MaxFileBytes]. name is its name or path; mediaType is the type that its source declared,
// "" if none. An error about the file wraps a [Problem] and has a message for its uploader; any other error is ctx's,
// the body's or the server's.
func (r *Reader) Read(ctx context.Context, app, name, mediaType string, body io.Reader) (document.Content, error) {
	if err := r.slots.Acquire(ctx, app); err != nil {
		return document.Content{}, err
	}
	defer r.slots.Release()
	// The file is read before the helper starts, so that a slow source does not use up the helper's time.
	data, err := io.ReadAll(io.LimitReader(body, MaxFileBytes+1))
	switch {
	case err != nil:
		return document.Content{}, fmt.Errorf("read the file: %w", err)
	case len(data) > MaxFileBytes:
		return document.Content{}, newFileTooLarge()
	case len(data) == 0:
		return document.Content{}, newProblem(Empty, "the file is empty")
	}
	// No parser works on plain text, only a few passes over its bytes. To start a helper takes longer than all else of the
	// indexing of a short text.
	if len(data) <= maxPlainBytes && newFile(name, mediaType, data).isPlainText() {
		return readContent(name, mediaType, data, defaultLimits)
	}
	return r.runHelper(ctx, app, request{Name: name, MediaType: mediaType}, data, r.untrusted())
}

// canRunUntrusted reports whether a helper can run as an untrusted program: as another user if the server is root. That
// user may not have access to the executable; then helpers run as the server's user, confined all the same.
func (r *Reader) canRunUntrusted() bool {
	if r.host.CheckUntrusted() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	_, err := r.runHelper(ctx, "", request{Name: "probe.txt"}, []byte("probe"), true)
	return err == nil
}

// errTimeout is the cause of the end of a helper that takes too long.
var errTimeout = errors.New("the program that reads files takes too long")

// runHelper has a helper read data of app. Its time begins when it has started.
func (r *Reader) runHelper(ctx context.Context, app string, q request, data []byte, untrusted bool) (document.Content, error) {
	// A folder for each file: what a helper that was taken over might leave there, no other helper sees.
	folder, err := r.makeFolder(untrusted)
	if err != nil {
		return document.Content{}, fmt.Errorf("make a folder for the program that reads files: %w", err)
	}
	defer func() { _ = folder.Remove() }()
	head, err := json.Marshal(q)
	if err != nil {
		return document.Content{}, err
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	cmd, err := r.host.NewCommand(limited, sandbox.Program{
		File: r.executable, Args: []string{helperName}, Env: append(sandbox.RaceSettings(), HelperVariable+"="+r.variable), Folder: folder.Path,
		CPU: r.timeout, Untrusted: untrusted, Root: filepath.Dir(r.executable),
	})
	if err != nil {
		return document.Content{}, fmt.Errorf("start the program that reads files: %w", err)
	}
	var stderr headWriter
	cmd.Stdin = io.MultiReader(bytes.NewReader(append(head, '\n')), bytes.NewReader(data))
	cmd.Stderr = &stderr
	defer sandbox.Kill(cmd)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return document.Content{}, fmt.Errorf("start the program that reads files: %w", err)
	}
	timer := time.AfterFunc(r.timeout, func() { cancel(errTimeout) })
	defer timer.Stop()
	r.started(app, cmd.Process)
	content, replyErr := readReply(stdout)
	if !errors.Is(replyErr, io.EOF) && !errors.Is(replyErr, io.ErrUnexpectedEOF) {
		cancel(nil) // it has nothing more to write; after the end of its output it ends with an exit code
	}
	_ = cmd.Wait() // describeExit looks at the state
	switch {
	case ctx.Err() != nil:
		return document.Content{}, ctx.Err()
	case replyErr == nil:
		return content, nil
	case isProblem(replyErr):
		return document.Content{}, replyErr
	case errors.Is(context.Cause(limited), errTimeout):
		return document.Content{}, newProblem(TooSlow, "reading the file takes more than %v: split it or save it in a simpler form", r.timeout)
	}
	return document.Content{}, describeExit(cmd.ProcessState, stderr.String())
}

// makeFolder makes the working directory of a helper.
func (r *Reader) makeFolder(untrusted bool) (*temporary.Folder, error) {
	folder, err := temporary.MakeFolder("extract")
	if err != nil || !untrusted {
		return folder, err
	}
	if err := r.host.ChownFolder(folder.Path); err != nil {
		return nil, errors.Join(err, folder.Remove())
	}
	return folder, nil
}

// Exit codes and messages by which a helper's end is recognised.
const (
	exitNotStarted = 126 // of the sandbox, also 127: the helper did not become this executable
	outOfStack     = "stack overflow"
	outOfMemory    = "out of memory"
	noMemory       = "cannot allocate memory"
	detectorMemory = "failed to allocate" // of the race detector, whose memory counts in such a build
)

// describeExit returns the error of a helper that ended without a complete reply.
func describeExit(state *os.ProcessState, stderr string) error {
	code := state.ExitCode()
	switch {
	case strings.Contains(stderr, outOfStack):
		return newProblem(TooComplex, "the content of the file is nested too deeply: save it in a simpler form")
	case code == exitMemory, strings.Contains(stderr, outOfMemory), strings.Contains(stderr, noMemory), strings.Contains(stderr, detectorMemory):
		return newProblem(TooComplex, "reading the file needs more than %d MiB of memory: split it or save it in a simpler form", maxHeapBytes>>20)
	case code == exitNotStarted, code == exitNotStarted+1:
		return fmt.Errorf("start the program that reads files: %v", state)
	}
	return newProblem(Crashed, "reading the file ended unexpectedly: it may be damaged; save it again with the program that made it")
}

// isProblem reports whether err is about the file.
func isProblem(err error) bool {
	var p Problem
	return errors.As(err, &p)
}

// readReply reads what a helper writes. It trusts nothing of it: a helper may have been taken over by the file.
func readReply(r io.Reader) (content document.Content, err error) {
	limit := &io.LimitedReader{R: r, N: maxReplyBytes}
	decoder := json.NewDecoder(limit)
	size := 0
	for {
		var line reply
		if err := decoder.Decode(&line); err != nil {
			if limit.N <= 0 {
				return content, newProblem(TooLarge, "the file has too much text: split it")
			}
			return content, fmt.Errorf("the reply of the program that reads files is incomplete: %w", err)
		}
		switch {
		case line.Section != nil:
			s := *line.Section
			if size += len(s.Text); size > 2*defaultLimits.text || len(content.Sections) >= defaultLimits.sections {
				return content, newProblem(TooLarge, "the file has too much text: split it")
			}
			s.Text = cleanReply(s.Text)
			s.Place.Heading, s.Place.Sheet = cleanLine(s.Place.Heading, maxPath), cleanLine(s.Place.Sheet, maxPath)
			s.Place.Page, s.Place.Line = max(s.Place.Page, 0), max(s.Place.Line, 0)
			content.Sections = append(content.Sections, s)
		case line.End != nil:
			content.Title, content.MediaType = cleanLine(line.End.Title, maxTitle), cleanLine(line.End.MediaType, maxTitle)
			return content, nil
		case line.Problem != nil && slices.Contains(problems, line.Problem.Problem):
			return content, newProblem(line.Problem.Problem, "%s", cleanLine(line.Problem.Message, maxMessage))
		default:
			return content, errors.New("the reply of the program that reads files is not known")
		}
	}
}

// maxPath bounds a path of headings: each of them, and what joins them.
const maxPath = (maxHeadingLevel + 1) * (maxHeading + 3)

// cleanReply returns text as cleanText does, without a copy if a helper has done so already.
func cleanReply(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isUnwanted) {
		return text
	}
	return cleanText(text)
}

// headWriter keeps the first maxStderrBytes that are written to it.
type headWriter struct{ strings.Builder }

// Write keeps what fits and drops the rest.
func (w *headWriter) Write(p []byte) (int, error) {
	w.Builder.Write(p[:min(len(p), maxStderrBytes-w.Len())])
	return len(p), nil
}
