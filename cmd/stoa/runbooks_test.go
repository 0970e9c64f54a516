package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"stoa/tenancy/db/dbtest"
)

// runbookBlock is a line of a block of a runbook, or a statement of one with SQL.
type runbookBlock struct{ page, text string }

// listRunbookBlocks returns what the blocks of a language in all runbooks have, cut at separator.
func listRunbookBlocks(t *testing.T, language, separator string) (found []runbookBlock) {
	t.Helper()
	for name, text := range readRunbooks(t) {
		for _, m := range fencePattern.FindAllStringSubmatch(text, -1) {
			if m[2] != language {
				continue
			}
			for part := range strings.SplitSeq(m[3], separator) {
				if part = strings.TrimSpace(part); part != "" {
					found = append(found, runbookBlock{name, part})
				}
			}
		}
	}
	if len(found) == 0 {
		t.Fatalf("no runbook has a block of %s", language)
	}
	return found
}

// readRunbooks returns the texts of all runbooks by the names of their files.
func readRunbooks(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/runbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(file)] = string(text)
	}
	return texts
}

// TestRunbookLogLines checks that the program writes the lines of the log that runbooks show.
func TestRunbookLogLines(t *testing.T) {
	t.Parallel()
	var sources strings.Builder
	err := filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		sources.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range listRunbookBlocks(t, "log", "\n") {
		if !strings.Contains(sources.String(), `"`+line.text) {
			t.Errorf("%s: nothing writes the line %q", line.page, line.text)
		}
	}
}

// TestRunbookFlags checks that the flags which runbooks name exist.
func TestRunbookFlags(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, kong.Vars{"defaultServer": defaultServer}, kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	err = kong.Visit(parser.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			known = append(known, flag.Name)
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for name, text := range readRunbooks(t) {
		for _, m := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(text, -1) {
			count++
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s: there is no flag --%s", name, m[1])
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d flags are found", count)
	}
}

// TestRunbookSQL runs the statements that runbooks show on PostgreSQL.
func TestRunbookSQL(t *testing.T) {
	t.Parallel()
	url := dbtest.NewPostgresURL(t)
	for _, statement := range listRunbookBlocks(t, "sql", ";") {
		t.Run(statement.page, func(t *testing.T) { dbtest.ExecSQL(t, url, statement.text) })
	}
}
