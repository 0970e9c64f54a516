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
	// maxPatternBytes bounds each pattern, in bytes.
	maxPatternBytes = 500
	// maxBraces and maxCommas bound the alternatives of a glob: the cost grows with the product of the lists' lengths,
	// here at most 5 to the 4th.
	maxBraces = 4
	maxCommas = 16
	// maxVisits bounds the files and folders that are looked at.
	maxVisits  = 50_000
	maxMatches = 200
	// maxSearchedBytes is the size above which a file is not searched, in bytes.
	maxSearchedBytes = 8 << 20
	// maxLineBytes bounds a line in the result, in bytes.
	maxLineBytes = 300
)

// searchFilesTool is the built-in search_files: it finds files by path and lines by content. Visits, matches, the size
// of files and the steps of the expression are bounded, and the result says where it was cut.
type searchFilesTool struct {
	app    string // see Options.App
	spec   agentsvc.ToolSpec
	folder confinedFolder
}

// newSearchFiles builds search_files.
func newSearchFiles(opts Options) (tool.Tool, error) {
	f, err := newConfinedFolder(opts)
	if err != nil {
		return nil, err
	}
	return searchFilesTool{app: opts.App, folder: f, spec: opts.toolSpec("Lists the files whose path fits a pattern or, with text, the lines in them that fit a regular expression.", `{
		"type": "object",
		"properties": {
			"files": {"type": "string", "description": "pattern of paths: * within a name, ** for any folders, {a,b}; for example src/**/*.go. All files if left out."},
			"text": {"type": "string", "description": "regular expression (RE2) that a line must fit; (?i) before it ignores case"}
		},
		"additionalProperties": false
	}`)}, nil
}

// Spec implements [tool.Tool].
func (s searchFilesTool) Spec() agentsvc.ToolSpec { return s.spec }

// IsIdempotent implements [tool.Tool]: searching has no effect.
func (s searchFilesTool) IsIdempotent() bool { return true }

// Call checks the patterns and walks the folder.
func (s searchFilesTool) Call(ctx context.Context, in tool.Call) (string, error) {
	args := struct {
		Files string `json:"files"`
		Text  string `json:"text"`
	}{Files: "**"}
	if err := decodeArguments(in, &args); err != nil {
		return "", err
	}
	// Paths of the walk have no leading "./".
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
	// An empty expression matches every line; without text, only paths are searched.
	if args.Text == "" {
		text = nil
	}
	root, err := s.folder.openRoot()
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	// The walk is confined by root: symbolic links are neither followed nor matched.
	search := fileSearch{folder: s.folder, root: root, pathPattern: args.Files, textPattern: text, work: pattern.NewStepBudget(ctx, s.app, 0)}
	if err := fs.WalkDir(root.FS(), ".", search.walkFunc(ctx)); err != nil && !errors.Is(err, fs.SkipAll) {
		return "", err
	}
	return search.formatMatches(), nil
}

// fileSearch is the state of one search.
type fileSearch struct {
	folder      confinedFolder
	root        *os.Root
	pathPattern string
	// textPattern is matched against each line; nil: only paths are searched.
	textPattern *pattern.Pattern
	work        *pattern.StepBudget
	// visited counts files and folders, see maxVisits.
	visited int
	matches []string
	// cutReason says why the result is incomplete, "" if it is complete.
	cutReason string
}

// walkFunc returns the function for each file and folder. Unreadable ones are skipped.
func (s *fileSearch) walkFunc(ctx context.Context) fs.WalkDirFunc {
	return func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The bound counts folders too: a tree of empty folders takes time as well.
		if s.visited++; s.visited > maxVisits {
			s.cutReason = fmt.Sprintf("only the first %d files and folders were looked at", maxVisits)
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() || !doublestar.MatchUnvalidated(s.pathPattern, name) {
			return nil // skip it
		}
		if s.textPattern == nil {
			return s.addMatch(name)
		}
		return s.searchLines(name)
	}
}

// addMatch adds a line to the result, or ends the walk if the result is full.
func (s *fileSearch) addMatch(line string) error {
	// SkipAll ends the walk without an error.
	if len(s.matches) == maxMatches {
		s.cutReason = fmt.Sprintf("these are the first %d", maxMatches)
		return fs.SkipAll
	}
	s.matches = append(s.matches, line)
	return nil
}

// searchLines adds the matching lines of a file, each with its path and number. A file with a NUL byte is not text and
// is skipped from there on. All files share one step budget, which grows with the bytes that are searched.
func (s *fileSearch) searchLines(name string) error {
	f, info, err := s.folder.openFile(s.root, name)
	// Unreadable and very large files are skipped without an error: one of them must not fail the whole search.
	if err != nil || info.Size() > maxSearchedBytes {
		if err == nil {
			_ = f.Close()
		}
		return nil //nolint:nilerr // what cannot be read is not found
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<20) // a longer line ends the search in this file
	for n := 1; in.Scan(); n++ {
		line := in.Text()
		// A NUL byte marks a binary file; what follows in it is not searched.
		if strings.IndexByte(line, 0) >= 0 {
			return nil
		}
		// The budget grows with the text that is searched.
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
			// The cut may be within a character.
			line = strings.ToValidUTF8(line[:maxLineBytes], "") + "..."
		}
		if err := s.addMatch(fmt.Sprintf("%s:%d: %s", name, n, line)); err != nil {
			return err
		}
	}
	return nil
}

// formatMatches returns the result as text, with the reason why it is incomplete, if any.
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
