// Package command is the tool that runs programs of the host. There is no shell: a call names a program and its
// arguments. A call passes three checks: its words are split without interpretation (words.go), the program must be
// permitted by the lists (lists.go), and it runs in a sandbox that confines it to one folder (run.go, package sandbox).
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

// Bounds of a call and defaults.
const (
	maxWords = 256
	// maxWordBytes bounds all words together, in bytes.
	maxWordBytes = 64 << 10
	// maxListedPrograms is the number of programs that the description for the model names.
	maxListedPrograms = 20
	defaultTimeout    = 30 * time.Second
	defaultMaxOutput  = 1 << 20
)

// Options describe a command tool.
type Options struct {
	// Name is the name that the model calls.
	Name string
	// Description is what the model reads, "" = a default.
	Description string
	// Folder is the working directory of programs, and the only folder that they can write.
	Folder string
	// Root is the folder below which Folder must be, also after symbolic links are resolved. It marks a tenant's tool:
	// its programs run as untrusted. "" = Folder may be anywhere, and the programs are the operator's.
	Root string
	// Allowed lists programs that may run, by name or absolute path; empty: all that are not denied.
	Allowed []string
	// Denied lists programs that may not run, in addition to the dangerous ones. It takes precedence over Allowed.
	Denied []string
	// DenyByDefault permits nothing that Allowed does not list, even if Allowed is empty.
	DenyByDefault bool
	// Timeout bounds one call, 0 = 30 s.
	Timeout time.Duration
	// MaxOutput bounds the output that is returned, in bytes, 0 = 1 MiB.
	MaxOutput int
}

// Tool runs programs. It is read-only after New and safe for concurrent use.
type Tool struct {
	spec agentsvc.ToolSpec
	opts Options
	// folder is Folder without symbolic links, as it was when the tool was built.
	folder string
	lists  programLists
	host   *sandbox.Host
}

// New returns a command tool on host. It returns an error with [agentsvc.CodeInvalid] if the folder is invalid or an
// entry of the lists is neither a name nor an absolute path.
func New(host *sandbox.Host, opts Options) (*Tool, error) {
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	if opts.MaxOutput == 0 {
		opts.MaxOutput = defaultMaxOutput
	}
	folder, err := resolveFolder(opts.Folder)
	// Below a root, a symbolic link must not lead outside of it.
	if err == nil && opts.Root != "" {
		folder, _, err = pinFolder(opts)
	}
	if err != nil {
		err = agentsvc.NewInvalidError("working_directory", "%v", err)
	}
	l, listsErr := newProgramLists(opts)
	if err := errors.Join(err, listsErr); err != nil {
		return nil, err
	}
	return &Tool{spec: newToolSpec(opts), opts: opts, folder: folder, lists: l, host: host}, nil
}

// resolveFolder returns the absolute path of dir without symbolic links. The root of the file system is refused: the
// sandbox would confine nothing.
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

// pinFolder returns the present path of the folder below opts.Root, without symbolic links, and its identity, by which
// the sandbox refuses a folder that was replaced between this check and the start of the program.
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

// newToolSpec returns the description for the model. The default one names the permitted programs.
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
	// A long list of programs would cost tokens in every request.
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

// IsIdempotent implements [tool.Tool]: what a program does when it runs again is unknown.
func (t *Tool) IsIdempotent() bool { return false }

// Call runs a program until it ends or its time is over. A program that fails is an error with its output.
func (t *Tool) Call(ctx context.Context, in tool.Call) (string, error) {
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
func parseArguments(in tool.Call) ([]string, error) {
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
