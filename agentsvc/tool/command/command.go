// Package command is the tool that runs programs of the host. There is no shell: a call is a program and its arguments,
// the program must be one that the lists let through, its arguments reach it as they are, and it runs in a sandbox (see
// package sandbox) that holds it to one folder.
package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/sandbox"
	"stoa/agentsvc/tool"
	"stoa/tenancy/grant"
)

// Bounds of a call.
const (
	maxWords          = 256
	maxWordBytes      = 64 << 10 // of all words
	maxListedPrograms = 20       // programs that the description names
	defaultTimeout    = 30 * time.Second
	defaultMaxOutput  = 1 << 20
)

// Options describe a command tool.
type Options struct {
	Name          string        // that the model calls it by
	Description   string        // that the model reads; its own if empty
	Folder        string        // where programs run, and all that they can write
	Root          string        // the folder below which Folder must lie, without symbolic links; "" = anywhere, and the programs are the operator's
	Allowed       []string      // programs that may run, by name or absolute path; without any, all but the denied
	Denied        []string      // programs that may not, besides the dangerous ones; stronger than Allowed
	DenyByDefault bool          // nothing runs that is not in Allowed, even if that is empty
	Timeout       time.Duration // of one call, 30 s if zero
	MaxOutput     int           // bytes that are kept of what a program prints, 1 MiB if zero
}

// Tool runs programs. It is safe for concurrent use.
type Tool struct {
	spec   agentsvc.ToolSpec
	opts   Options
	folder string
	lists  programLists
	host   *sandbox.Host
}

// New returns a command tool on host. It returns an [agentsvc.InvalidError] for a folder that is none and for an entry
// of the lists that is neither a name nor an absolute path.
func New(host *sandbox.Host, opts Options) (*Tool, error) {
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.MaxOutput == 0 {
		opts.MaxOutput = defaultMaxOutput
	}
	folder, err := resolveFolder(opts.Folder)
	if err == nil && opts.Root != "" {
		folder, _, err = pinFolder(opts)
	}
	if err != nil {
		return nil, agentsvc.NewInvalidError("working_directory", "%v", err)
	}
	l, err := newProgramLists(opts)
	if err != nil {
		return nil, err
	}
	return &Tool{spec: newToolSpec(opts), opts: opts, folder: folder, lists: l, host: host}, nil
}

// resolveFolder returns the folder that programs are held to, without symbolic links.
func resolveFolder(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	folder, err := filepath.EvalSymlinks(abs)
	if folder == "/" {
		return "", errors.New("is the whole file system; name a folder in it")
	}
	if info, statErr := os.Stat(folder); err != nil || statErr != nil || !info.IsDir() {
		return "", fmt.Errorf("%s is no folder", dir)
	}
	return folder, nil
}

// pinFolder returns the folder below the root of opts as it is now: its path without symbolic links, and what it is.
func pinFolder(opts Options) (string, fs.FileInfo, error) {
	below, ok := grant.RelBelow(opts.Root, opts.Folder)
	if !ok {
		return "", nil, fmt.Errorf("%s lies outside of %s", opts.Folder, opts.Root)
	}
	folder, info, err := grant.RootedPath{Root: opts.Root, Path: below}.StatFolder()
	if err != nil {
		return "", nil, fmt.Errorf("%s is no folder below %s", opts.Folder, opts.Root)
	}
	return folder, info, nil
}

func newToolSpec(opts Options) agentsvc.ToolSpec {
	spec := agentsvc.ToolSpec{Name: opts.Name, Description: opts.Description, Parameters: json.RawMessage(`{
		"type": "object",
		"properties": {
			"command": {"type": "string", "description": "the program, and arguments where quotes separate them clearly, for example: grep -n 'two words' notes.txt"},
			"args": {"type": "array", "items": {"type": "string"}, "description": "further arguments, each reaching the program as it is"}
		},
		"required": ["command"],
		"additionalProperties": false
	}`)}
	if spec.Description != "" {
		return spec
	}
	spec.Description = "Runs a program in a folder and returns its exit code and what it printed. There is no shell: no pipes, redirections, variables or wildcards."
	switch n := len(opts.Allowed); {
	case n > maxListedPrograms:
		spec.Description += fmt.Sprintf(" Programs: %s and %d more.", strings.Join(opts.Allowed[:maxListedPrograms], ", "), n-maxListedPrograms)
	case n > 0:
		spec.Description += " Programs: " + strings.Join(opts.Allowed, ", ") + "."
	}
	return spec
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() agentsvc.ToolSpec { return t.spec }

// IsIdempotent implements [tool.Tool]: nobody knows what a program does when it runs again.
func (t *Tool) IsIdempotent() bool { return false }

// Call runs a program to its end, or to the end of its time. A program that fails is an error with what it printed.
func (t *Tool) Call(ctx context.Context, in tool.Input) (string, error) {
	words, err := parseArguments(in)
	if err != nil {
		return "", err
	}
	p, err := t.lists.findProgram(words[0], t.folder)
	if err != nil {
		return "", err
	}
	words[0] = filepath.Base(p.foundPath)
	return t.runProgram(ctx, p, words)
}

// parseArguments returns the words of a call: the program and its arguments.
func parseArguments(in tool.Input) ([]string, error) {
	var args struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}
	if err := json.Unmarshal(in.Arguments, &args); err != nil {
		return nil, err
	}
	words, err := splitWords(args.Command)
	if err != nil {
		return nil, err
	}
	words = append(words, args.Args...)
	total := 0
	for _, w := range words {
		if strings.IndexByte(w, 0) >= 0 {
			return nil, errors.New("an argument holds a NUL character")
		}
		total += len(w)
	}
	switch {
	case len(words) == 0 || words[0] == "":
		return nil, errors.New("command names no program")
	case len(words) > maxWords:
		return nil, fmt.Errorf("more than %d arguments", maxWords)
	case total > maxWordBytes:
		return nil, fmt.Errorf("the arguments are longer than %d bytes", maxWordBytes)
	}
	return words, nil
}
