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
	maxPatternBytes  = 500 // bytes
	maxBraces        = 4   // lists of alternatives in a glob, which multiply the work by their lengths
	maxCommas        = 16  // between them, and so 5 to the 4th combinations at most
	maxVisits        = 50_000
	maxMatches       = 200
	maxSearchedBytes = 8 << 20 // bytes of a file that is searched
	maxLineBytes     = 300     // bytes of a line
)

// searchFilesTool finds files of its folder by name and text.
type searchFilesTool struct {
	spec   agentsvc.ToolSpec
	folder confinedFolder
}

func newSearchFiles(opts Options) (tool.Tool, error) {
	f, err := newConfinedFolder(opts)
	if err != nil {
		return nil, err
	}
	return searchFilesTool{folder: f, spec: opts.toolSpec("Lists the files whose path fits a pattern or, with text, the lines in them that fit a regular expression.", `{
		"type": "object",
		"properties": {
			"files": {"type": "string", "description": "pattern of paths: * within a name, ** for any folders, {a,b}; for example src/**/*.go. All files if left out."},
			"text": {"type": "string", "description": "regular expression (RE2) that a line must fit; (?i) before it ignores case"}
		},
		"additionalProperties": false
	}`)}, nil
}

func (s searchFilesTool) Spec() agentsvc.ToolSpec { return s.spec }
func (s searchFilesTool) IsIdempotent() bool      { return true }

func (s searchFilesTool) Call(ctx context.Context, in tool.Input) (string, error) {
	args := struct {
		Files string `json:"files"`
		Text  string `json:"text"`
	}{Files: "**"}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	args.Files = strings.TrimPrefix(args.Files, "./")
	switch {
	case len(args.Files) > maxPatternBytes || len(args.Text) > maxPatternBytes:
		return "", fmt.Errorf("a pattern is longer than %d bytes", maxPatternBytes)
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
	root, err := s.folder.openRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	search := fileSearch{root: root, pathPattern: args.Files, textPattern: text, work: pattern.NewStepBudget(ctx, 0)}
	if err := fs.WalkDir(root.FS(), ".", search.walkFunc(ctx)); err != nil && !errors.Is(err, fs.SkipAll) {
		return "", err
	}
	return search.formatMatches(), nil
}

// fileSearch is one at work.
type fileSearch struct {
	root        *os.Root
	pathPattern string
	textPattern *pattern.Pattern // nil = any
	work        *pattern.StepBudget
	visited     int
	matches     []string
	cutReason   string // why there may be more
}

func (s *fileSearch) walkFunc(ctx context.Context) fs.WalkDirFunc {
	return func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s.visited++; s.visited > maxVisits {
			s.cutReason = fmt.Sprintf("only the first %d files and folders were looked at", maxVisits)
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() || !doublestar.MatchUnvalidated(s.pathPattern, name) {
			return nil // what cannot be read is not found
		}
		if s.textPattern == nil {
			return s.addMatch(name)
		}
		return s.searchLines(name)
	}
}

func (s *fileSearch) addMatch(line string) error {
	if len(s.matches) == maxMatches {
		s.cutReason = fmt.Sprintf("these are the first %d", maxMatches)
		return fs.SkipAll
	}
	s.matches = append(s.matches, line)
	return nil
}

// searchLines adds the lines of a file that fit, unless the file is no text.
func (s *fileSearch) searchLines(name string) error {
	f, info, err := openFile(s.root, name)
	if err != nil || info.Size() > maxSearchedBytes {
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
		s.work.AddBytes(len(line))
		fits, err := s.textPattern.Match(s.work, line)
		switch {
		case errors.Is(err, pattern.ErrTooManySteps):
			s.cutReason = "text takes too much work to look for in the rest"
			return fs.SkipAll
		case err != nil:
			return err
		case !fits:
			continue
		}
		if len(line) > maxLineBytes {
			line = strings.ToValidUTF8(line[:maxLineBytes], "") + "..."
		}
		if err := s.addMatch(fmt.Sprintf("%s:%d: %s", name, n, line)); err != nil {
			return err
		}
	}
	return nil
}

func (s *fileSearch) formatMatches() string {
	text := strings.Join(s.matches, "\n")
	if text == "" {
		text = "Nothing was found."
	}
	if s.cutReason != "" {
		text += "\n[cut here: " + s.cutReason + "]"
	}
	return text
}
