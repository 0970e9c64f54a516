package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// forbiddenWords are metaphors and vague words, with what to write instead. They are forbidden in comments, in
// Markdown and as a part of an identifier. Quoted text and code in backticks are not checked.
var forbiddenWords = map[string]string{
	"acquaintance": "name the relation", "acquaintances": "name the relation",
	"bequeath": "hand over", "beside": "next to, with, in addition to or during", "courier": "sender", "couriers": "senders",
	"crew": "workers", "desk": "name the component", "door": "admission or authentication", "doors": "admission or authentication",
	"floor": "layer", "floors": "layers", "guest": "third-party dependency, or app", "guests": "third-party dependencies, or apps",
	"heed": "obey or read", "house": "server or process", "nobody": "no caller, no process, not", "room": "package, space, memory or budget",
	"rooms": "packages", "said": "sent, wrote or answered", "shelf": "name the store", "stranger": "other caller", "strangers": "other callers",
	"stray": "name what is wrong", "tell": "report, send or distinguish", "telling": "reporting, sending or distinguishing",
	"tells": "reports, sends or distinguishes", "told": "reported, sent or informed", "unheard": "name what was not received",
	"wary": "name the state", "whoever": "name who",
}

// forbiddenIdentifiers are forbidden as whole identifiers only.
var forbiddenIdentifiers = []string{"away", "company", "flight", "hold", "mind", "spot"}

// allowedWords are literal uses: a word in the files that a prefix of their path names.
var allowedWords = []struct{ prefix, word, reason string }{
	{"agentsvc/tool/function/arithmetic.go", "floor", "the mathematical function"},
	{"migrations/", "", "a migration that was released is not edited"},
}

var (
	wordPattern = regexp.MustCompile(`[A-Za-z]+`)
	// quotedPattern matches code and quotations in a line of prose.
	quotedPattern = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|https?://\\S+|\\]\\([^)]*\\)")
)

// TestWords checks the identifiers and comments of Go and SQL files and the text of Markdown files for words that
// docs/architecture.md does not know.
func TestWords(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			base := entry.Name()
			if name != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		var find func(src []byte) []foundWord
		switch filepath.Ext(name) {
		case ".go":
			find = findGoWords
		case ".sql":
			find = findSQLWords
		case ".md":
			find = findMarkdownWords
		default:
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, found := range find(src) {
			if !isAllowedWord(relative, found.word) {
				t.Errorf("%s:%d: %q is not used here: write %s", relative, found.line, found.word, found.instead)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestWordsDetects checks that forbidden words are found in each kind of file, and literal uses are not.
func TestWordsDetects(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		got  []foundWord
		want []string
	}{
		{"identifiers", findGoWords([]byte("package x\nvar newHouse, hold, canHold, storehouse int")), []string{"house", "hold"}},
		{"comments", findGoWords([]byte("package x // the guest is told \"nobody\" by `house`\nvar x = \"whoever\"")), []string{"guest", "told"}},
		{"sql", findSQLWords([]byte("SELECT told -- by whoever\nFROM house")), []string{"whoever"}},
		{"markdown", findMarkdownWords([]byte("Whoever reads `told`.\n\n```\nnobody\n```\n\nThe [guests](house.md).")), []string{"whoever", "guests"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var words []string
			for _, found := range tt.got {
				words = append(words, found.word)
			}
			if !slices.Equal(words, tt.want) {
				t.Errorf("got %v, want %v", words, tt.want)
			}
		})
	}
}

// foundWord is a forbidden word in a file, with its line and what to write instead.
type foundWord struct {
	line          int
	word, instead string
}

// isAllowedWord reports whether allowedWords allows word in the file at path.
func isAllowedWord(path, word string) bool {
	for _, row := range allowedWords {
		if strings.HasPrefix(path, row.prefix) && (row.word == "" || row.word == word) {
			return true
		}
	}
	return false
}

// findGoWords returns the forbidden words in the identifiers and comments of a Go file.
func findGoWords(src []byte) []foundWord {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, scanner.ScanComments)
	var found []foundWord
	for {
		pos, tok, text := s.Scan()
		line := file.Line(pos)
		switch tok {
		case token.EOF:
			return found
		case token.COMMENT:
			for i, part := range strings.Split(text, "\n") {
				found = append(found, findProseWords(line+i, part)...)
			}
		case token.IDENT:
			if slices.Contains(forbiddenIdentifiers, text) {
				found = append(found, foundWord{line, text, "what it is"})
			}
			for _, word := range splitIdentifier(text) {
				if instead := forbiddenWords[word]; instead != "" {
					found = append(found, foundWord{line, word, instead})
				}
			}
		default:
		}
	}
}

// findSQLWords returns the forbidden words in the comments of an SQL file.
func findSQLWords(src []byte) []foundWord {
	var found []foundWord
	for i, line := range bytes.Split(src, []byte("\n")) {
		if _, comment, ok := strings.Cut(string(line), "--"); ok {
			found = append(found, findProseWords(i+1, comment)...)
		}
	}
	return found
}

// findMarkdownWords returns the forbidden words in the text of a Markdown file, without its blocks of code.
func findMarkdownWords(src []byte) []foundWord {
	var found []foundWord
	inCode := false
	for i, line := range strings.Split(string(src), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			continue
		}
		if !inCode {
			found = append(found, findProseWords(i+1, line)...)
		}
	}
	return found
}

// findProseWords returns the forbidden words in a line of prose.
func findProseWords(line int, text string) []foundWord {
	var found []foundWord
	for _, word := range wordPattern.FindAllString(quotedPattern.ReplaceAllString(text, " "), -1) {
		word = strings.ToLower(word)
		if instead := forbiddenWords[word]; instead != "" {
			found = append(found, foundWord{line, word, instead})
		}
	}
	return found
}

// splitIdentifier returns the words of an identifier in lower case: newHTTPServer has new, http and server.
func splitIdentifier(name string) []string {
	var words []string
	start, letters := 0, []rune(name)
	for i := 1; i <= len(letters); i++ {
		isEnd := i == len(letters) || letters[i] == '_' || unicode.IsUpper(letters[i]) &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if isEnd {
			words = append(words, strings.ToLower(strings.Trim(string(letters[start:i]), "_0123456789")))
			start = i
		}
	}
	return words
}
