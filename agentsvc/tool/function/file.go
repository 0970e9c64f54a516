package function

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// Bounds of files.
const (
	maxReadBytes  = 256 << 10 // bytes that are shown at once
	maxWriteBytes = 1 << 20   // bytes of a file that is written
	defaultLines  = 2000      // that are shown unless more are asked for
)

// readFileTool shows a text file of its folder.
type readFileTool struct {
	spec   agentsvc.ToolSpec
	folder confinedFolder
}

func newReadFile(opts Options) (tool.Tool, error) {
	f, err := newConfinedFolder(opts)
	if err != nil {
		return nil, err
	}
	return readFileTool{folder: f, spec: opts.toolSpec("Reads a text file. Of a long one, it returns the lines that are asked for and says how many there are.", `{
		"type": "object",
		"properties": {
			"path": {"type": "string", "description": "relative to the folder, for example notes/today.txt"},
			"from": {"type": "integer", "minimum": 1, "description": "first line, 1 if left out"},
			"lines": {"type": "integer", "minimum": 1, "description": "number of lines, 2000 if left out"}
		},
		"required": ["path"],
		"additionalProperties": false
	}`)}, nil
}

func (r readFileTool) Spec() agentsvc.ToolSpec { return r.spec }
func (r readFileTool) IsIdempotent() bool      { return true }

func (r readFileTool) Call(ctx context.Context, in tool.Input) (string, error) {
	args := struct {
		Path  string `json:"path"`
		From  int    `json:"from"`
		Lines int    `json:"lines"`
	}{From: 1, Lines: defaultLines}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	name, err := cleanLocalPath(args.Path)
	if err != nil {
		return "", err
	}
	root, err := r.folder.openRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	f, _, err := openFile(root, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return readLines(ctx, f, name, max(args.From, 1), max(args.Lines, 1))
}

// readLines returns count lines of a file from the one numbered from, with a note if those are not all.
func readLines(ctx context.Context, f io.Reader, name string, from, count int) (string, error) {
	in := bufio.NewReaderSize(f, 64<<10)
	var text strings.Builder
	at, last, long := 0, 0, false // the lines there are, the last one shown
	for atLineStart := true; ; {
		part, err := in.ReadSlice('\n')
		if len(part) == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return "", describePathError(name, err)
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if atLineStart {
			at++
		}
		if atLineStart = err == nil; at >= from && at-from < count && !long {
			if strings.IndexByte(string(part), 0) >= 0 {
				return "", fmt.Errorf("%s is no text", name)
			}
			remaining := maxReadBytes - text.Len()
			long = len(part) > remaining
			text.Write(part[:min(len(part), remaining)])
			last = at
		}
	}
	switch {
	case at == 0:
		return "[the file is empty]", nil
	case last == 0:
		return "", fmt.Errorf("%s has %d lines", name, at)
	case long:
		fmt.Fprintf(&text, "\n[cut here: lines %d to %d of %d, the last one not whole]", from, last, at)
	case from > 1 || last < at:
		fmt.Fprintf(&text, "\n[lines %d to %d of %d]", from, last, at)
	}
	return text.String(), nil
}

// writeFileTool writes text files of its folder.
type writeFileTool struct {
	spec   agentsvc.ToolSpec
	folder confinedFolder
}

func newWriteFile(opts Options) (tool.Tool, error) {
	f, err := newConfinedFolder(opts)
	if err != nil {
		return nil, err
	}
	return writeFileTool{folder: f, spec: opts.toolSpec("Writes a text file, in place of the one that may be there. Folders on its path are made.", `{
		"type": "object",
		"properties": {
			"path": {"type": "string", "description": "relative to the folder, for example notes/today.txt"},
			"content": {"type": "string", "description": "the whole file"}
		},
		"required": ["path", "content"],
		"additionalProperties": false
	}`)}, nil
}

func (w writeFileTool) Spec() agentsvc.ToolSpec { return w.spec }
func (w writeFileTool) IsIdempotent() bool      { return true }

func (w writeFileTool) Call(_ context.Context, in tool.Input) (string, error) {
	var args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	name, err := cleanLocalPath(args.Path)
	switch {
	case err != nil:
		return "", err
	case name == ".":
		return "", errors.New("the folder itself cannot be written")
	case len(args.Content) > maxWriteBytes:
		return "", fmt.Errorf("content is longer than %d bytes", maxWriteBytes)
	}
	root, err := w.folder.openRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	if err := replaceFile(root, name, args.Content); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s now has %d bytes.", name, len(args.Content)), nil
}

// replaceFile puts a file in the place of what stands at name: whole, or not at all.
func replaceFile(root *os.Root, name, content string) error {
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file, and is left as it is", name)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return describePathError(name, err)
	}
	tempName := path.Join(path.Dir(name), ".new-"+agentsvc.NewID())
	f, err := root.OpenFile(tempName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return describePathError(name, err)
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(tempName, name)
	}
	if err != nil {
		_ = root.Remove(tempName)
		return describePathError(name, err)
	}
	return nil
}
