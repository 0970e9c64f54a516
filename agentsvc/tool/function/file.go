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
	// maxReadBytes bounds what one call returns, in bytes.
	maxReadBytes = 256 << 10
	// maxWriteBytes bounds a file that is written, in bytes.
	maxWriteBytes = 1 << 20
	// defaultLines is the number of lines that are returned where the model gives none.
	defaultLines = 2000
)

// readFileTool is the built-in read_file. It returns a range of lines, so that a model can read a long file in parts.
type readFileTool struct {
	spec   agentsvc.ToolSpec
	folder confinedFolder
}

// newReadFile builds read_file.
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

// Spec implements [tool.Tool].
func (r readFileTool) Spec() agentsvc.ToolSpec { return r.spec }

// IsIdempotent implements [tool.Tool]: reading has no effect.
func (r readFileTool) IsIdempotent() bool { return true }

// Call returns lines of a text file. It opens the file through the folder's root, so that no path leads outside.
func (r readFileTool) Call(ctx context.Context, in tool.Call) (string, error) {
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
	f, _, err := r.folder.openFile(root, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return readLines(ctx, f, name, max(args.From, 1), max(args.Lines, 1))
}

// readLines returns count lines of a file from line number from on, with a note if those are not all. It reads the
// whole file, to count its lines, in pieces: a line may be longer than memory.
func readLines(ctx context.Context, f io.Reader, name string, from, count int) (string, error) {
	in := bufio.NewReaderSize(f, 64<<10)
	var text strings.Builder
	at, last, long := 0, 0, false // lines read, number of the last line returned, the output is full
	for atLineStart := true; ; {
		// ReadSlice returns a piece of a line that is longer than the buffer, with ErrBufferFull.
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
		// A line is counted at its first piece.
		if atLineStart {
			at++
		}
		if atLineStart = err == nil; at >= from && at-from < count && !long {
			// A NUL byte marks a binary file. Lines that are not returned are not checked.
			if strings.IndexByte(string(part), 0) >= 0 {
				return "", fmt.Errorf("%s is no text", name)
			}
			// The last line is cut when the output is full; the note says so.
			remaining := maxReadBytes - text.Len()
			long = len(part) > remaining
			// The rest of the file is read on, to count its lines.
			text.Write(part[:min(len(part), remaining)])
			last = at
		}
	}
	switch {
	case at == 0:
		return "[the file is empty]", nil
	// The file ends before the requested line: an error, so that the model corrects the number.
	case last == 0:
		return "", fmt.Errorf("%s has %d lines", name, at)
	case long:
		fmt.Fprintf(&text, "\n[cut here: lines %d to %d of %d, the last one not whole]", from, last, at)
	case from > 1 || last < at:
		fmt.Fprintf(&text, "\n[lines %d to %d of %d]", from, last, at)
	}
	return text.String(), nil
}

// writeFileTool is the built-in write_file. It replaces whole files only. A repeated call writes the same content, so
// the tool is idempotent.
type writeFileTool struct {
	spec   agentsvc.ToolSpec
	folder confinedFolder
}

// newWriteFile builds write_file.
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

// Spec implements [tool.Tool].
func (w writeFileTool) Spec() agentsvc.ToolSpec { return w.spec }

// IsIdempotent implements [tool.Tool]: a repeated call writes the same content to the same file.
func (w writeFileTool) IsIdempotent() bool { return true }

// Call writes a text file.
func (w writeFileTool) Call(_ context.Context, in tool.Call) (string, error) {
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
	// Clean returns "." for the folder itself.
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
	if err := w.folder.replaceFile(root, name, args.Content); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s now has %d bytes.", name, len(args.Content)), nil
}

// replaceFile replaces the file at name atomically: it writes a temporary file in the same folder and renames it, so
// that a reader sees the old or the new content. It refuses anything but a regular file at name, and files of the server
// itself.
func (f confinedFolder) replaceFile(root *os.Root, name, content string) error {
	// Lstat, not Stat: a symbolic link is not followed but refused.
	switch info, err := root.Lstat(name); {
	case err != nil:
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file, and is left as it is", name)
	case f.guard.IsOwnFile(info):
		return errOwnFile(name)
	}
	// Folders are created within the root only; a link that leads out of it fails.
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return describePathError(name, err)
	}
	tempName := path.Join(path.Dir(name), ".new-"+agentsvc.NewID())
	// O_EXCL: the name is new, so no other file is overwritten.
	temp, err := root.OpenFile(tempName, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return describePathError(name, err)
	}
	_, err = temp.WriteString(content)
	// An error of Close may be a failed write, e.g. a full disk.
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = root.Rename(tempName, name)
	}
	if err != nil {
		// Leave no temporary file behind.
		_ = root.Remove(tempName)
		return describePathError(name, err)
	}
	return nil
}
