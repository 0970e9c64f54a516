package function

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"stoa/agentsvc"
	"stoa/agentsvc/pattern"
	"stoa/agentsvc/tool"
)

// Bounds of a search.
const (
	maxPattern  = 500 // bytes
	maxBraces   = 4   // lists of alternatives in a glob, which multiply the work by their lengths
	maxCommas   = 16  // between them, and so 5 to the 4th combinations at most
	maxVisits   = 50_000
	maxFound    = 200
	maxSearched = 8 << 20 // bytes of a file that is searched
	maxShown    = 300     // bytes of a line
)

// searchFiles finds files of its folder by name and text.
type searchFiles struct {
	spec   agentsvc.ToolSpec
	folder folder
}

func newSearchFiles(opts Options) (tool.Tool, error) {
	f, err := newFolder(opts)
	if err != nil {
		return nil, err
	}
	return searchFiles{folder: f, spec: opts.spec("Lists the files whose path fits a pattern or, with text, the lines in them that fit a regular expression.", `{
		"type": "object",
		"properties": {
			"files": {"type": "string", "description": "pattern of paths: * within a name, ** for any folders, {a,b}; for example src/**/*.go. All files if left out."},
			"text": {"type": "string", "description": "regular expression (RE2) that a line must fit; (?i) before it ignores case"}
		},
		"additionalProperties": false
	}`)}, nil
}

func (s searchFiles) Spec() agentsvc.ToolSpec { return s.spec }
func (s searchFiles) Idempotent() bool        { return true }

func (s searchFiles) Call(ctx context.Context, in tool.Input) (string, error) {
	args := struct {
		Files string `json:"files"`
		Text  string `json:"text"`
	}{Files: "**"}
	if err := decode(in, &args); err != nil {
		return "", err
	}
	args.Files = strings.TrimPrefix(args.Files, "./")
	switch {
	case len(args.Files) > maxPattern || len(args.Text) > maxPattern:
		return "", fmt.Errorf("a pattern is longer than %d bytes", maxPattern)
	case strings.Count(args.Files, "{") > maxBraces || strings.Count(args.Files, ",") > maxCommas:
		return "", fmt.Errorf("files holds more than %d lists of alternatives {a,b}, or more than %d commas", maxBraces, maxCommas)
	case !doublestar.ValidatePattern(args.Files):
		return "", errors.New("files is no pattern: a bracket is not closed")
	}
	text, err := pattern.Compile(args.Text)
	if err != nil {
		return "", fmt.Errorf("text %w", err)
	}
	if args.Text == "" {
		text = nil
	}
	root, err := s.folder.open()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	search := search{root: root, files: args.Files, text: text, work: pattern.NewWork(ctx, 0)}
	if err := fs.WalkDir(root.FS(), ".", search.visit(ctx)); err != nil && !errors.Is(err, fs.SkipAll) {
		return "", err
	}
	return search.told(), nil
}

// search is one at work.
type search struct {
	root   *os.Root
	files  string
	text   *pattern.Pattern // nil = any
	work   *pattern.Work
	visits int
	found  []string
	cut    string // why there may be more
}

func (s *search) visit(ctx context.Context) fs.WalkDirFunc {
	return func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.visits++; s.visits > maxVisits {
			s.cut = fmt.Sprintf("only the first %d files and folders were looked at", maxVisits)
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() || !doublestar.MatchUnvalidated(s.files, name) {
			return nil // what cannot be read is not found
		}
		if s.text == nil {
			return s.add(name)
		}
		return s.lines(name)
	}
}

func (s *search) add(line string) error {
	if len(s.found) == maxFound {
		s.cut = fmt.Sprintf("these are the first %d", maxFound)
		return fs.SkipAll
	}
	s.found = append(s.found, line)
	return nil
}

// lines adds the lines of a file that fit, unless the file is no text.
func (s *search) lines(name string) error {
	f, info, err := openFile(s.root, name)
	if err != nil || info.Size() > maxSearched {
		if err == nil {
			_ = f.Close()
		}
		return nil //nolint:nilerr // what cannot be read is not found
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20) // a longer line ends the file
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		if strings.IndexByte(line, 0) >= 0 {
			return nil
		}
		s.work.Grow(len(line))
		fits, err := s.text.Match(s.work, line)
		switch {
		case errors.Is(err, pattern.ErrTooMuch):
			s.cut = "text takes too much work to look for in the rest"
			return fs.SkipAll
		case err != nil:
			return err
		case !fits:
			continue
		}
		if len(line) > maxShown {
			line = strings.ToValidUTF8(line[:maxShown], "") + "..."
		}
		if err := s.add(fmt.Sprintf("%s:%d: %s", name, n, line)); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) told() string {
	text := strings.Join(s.found, "\n")
	if text == "" {
		text = "Nothing was found."
	}
	if s.cut != "" {
		text += "\n[cut here: " + s.cut + "]"
	}
	return text
}
