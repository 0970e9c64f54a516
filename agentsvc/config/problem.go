package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a document.
type Problem struct {
	// Path leads to the offending value, such as agents.assistant.tools[0]; it is empty for the whole document.
	Path string `json:"path"`
	// Line and Column count from 1; they are 0 where the whole document is meant.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Message says what is wrong and what would be right. It never holds the value of a variable or a secret.
	Message string `json:"message"`
	// Suggestion is the word that was probably meant, or empty.
	Suggestion string `json:"suggestion"`
}

func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Suggestion != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", p.Suggestion)
	}
	return b.String()
}

// Error is everything that is wrong with a document, in the order of its lines.
type Error struct {
	// File names the document; it may be empty.
	File     string
	Problems []Problem
}

// Error puts each problem on a line of its own, as file:line:column: path: message.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
		switch {
		case e.File != "" && p.Line > 0:
			lines[i] = e.File + ":" + lines[i]
		case e.File != "":
			lines[i] = e.File + ": " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds how many problems are told; a document can be wrong on each of its lines.
const maxProblems = 100

// problems collects what is wrong.
type problems struct {
	list    []Problem
	omitted int
}

func (ps *problems) addProblem(p Problem) {
	if ps.isFull() {
		ps.omitted++
		return
	}
	ps.list = append(ps.list, p)
}

func (ps *problems) isFull() bool {
	return len(ps.list) >= maxProblems
}

// asError returns all problems by line, or nil if there are none.
func (ps *problems) asError(file string) error {
	if len(ps.list) == 0 {
		return nil
	}
	slices.SortStableFunc(ps.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	if ps.omitted > 0 {
		ps.list = append(ps.list, Problem{Message: fmt.Sprintf("and %d more problems", ps.omitted)})
	}
	return &Error{File: file, Problems: ps.list}
}
