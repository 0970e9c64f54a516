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
	maxRead  = 256 << 10 // bytes that are shown at once
	maxWrite = 1 << 20   // bytes of a file that is written
	maxLines = 2000      // that are shown unless more are asked for
)

// readFile shows a text file of its folder.
type readFile struct {
	spec   agentsvc.ToolSpec
	folder folder
}

func newReadFile(opts Options) (tool.Tool, error) {
	f, err := newFolder(opts)
	if err != nil {
		return nil, err
	}
	return readFile{folder: f, spec: opts.spec("Reads a text file. Of a long one, it returns the lines that are asked for and says how many there are.", `{
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

func (r readFile) Spec() agentsvc.ToolSpec { return r.spec }
func (r readFile) Idempotent() bool        { return true }

func (r readFile) Call(ctx context.Context, in tool.Input) (string, error) {
	args := struct {
		Path  string `json:"path"`
		From  int    `json:"from"`
		Lines int    `json:"lines"`
	}{From: 1, Lines: maxLines}
	if err := decode(in, &args); err != nil {
		return "", err
	}
	name, err := local(args.Path)
	if err != nil {
		return "", err
	}
	root, err := r.folder.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	f, _, err := openFile(root, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return lines(ctx, f, name, max(args.From, 1), max(args.Lines, 1))
}

// lines returns count lines of a file from the one numbered from, with a note if those are not all.
func lines(ctx context.Context, f io.Reader, name string, from, count int) (string, error) {
	in := bufio.NewReaderSize(f, 64<<10)
	var text strings.Builder
	at, last, long := 0, 0, false // the lines there are, the last one shown
	for begins := true; ; {
		part, err := in.ReadSlice('\n')
		if len(part) == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return "", inWords(name, err)
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if begins {
			at++
		}
		if begins = err == nil; at >= from && at-from < count && !long {
			if strings.IndexByte(string(part), 0) >= 0 {
				return "", fmt.Errorf("%s is no text", name)
			}
			room := maxRead - text.Len()
			long = len(part) > room
			text.Write(part[:min(len(part), room)])
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

// writeFile writes text files of its folder.
type writeFile struct {
	spec   agentsvc.ToolSpec
	folder folder
}

func newWriteFile(opts Options) (tool.Tool, error) {
	f, err := newFolder(opts)
	if err != nil {
		return nil, err
	}
	return writeFile{folder: f, spec: opts.spec("Writes a text file, in place of the one that may be there. Folders on its path are made.", `{
		"type": "object",
		"properties": {
			"path": {"type": "string", "description": "relative to the folder, for example notes/today.txt"},
			"content": {"type": "string", "description": "the whole file"}
		},
		"required": ["path", "content"],
		"additionalProperties": false
	}`)}, nil
}

func (w writeFile) Spec() agentsvc.ToolSpec { return w.spec }
func (w writeFile) Idempotent() bool        { return true }

func (w writeFile) Call(_ context.Context, in tool.Input) (string, error) {
	var args struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if err := decode(in, &args); err != nil {
		return "", err
	}
	name, err := local(args.Path)
	switch {
	case err != nil:
		return "", err
	case name == ".":
		return "", errors.New("the folder itself cannot be written")
	case len(args.Content) > maxWrite:
		return "", fmt.Errorf("content is longer than %d bytes", maxWrite)
	}
	root, err := w.folder.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	if err := replace(root, name, args.Content); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s now has %d bytes.", name, len(args.Content)), nil
}

// replace puts a file in the place of what stands at name: whole, or not at all.
func replace(root *os.Root, name, content string) error {
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file, and is left as it is", name)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return inWords(name, err)
	}
	fresh := path.Join(path.Dir(name), ".new-"+agentsvc.NewID())
	f, err := root.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return inWords(name, err)
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(fresh, name)
	}
	if err != nil {
		_ = root.Remove(fresh)
		return inWords(name, err)
	}
	return nil
}
