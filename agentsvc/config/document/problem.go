package document

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one error of a document.
type Problem struct {
	// Path is the path of the value, such as agents.assistant.tools[0]; "" for the whole document.
	Path string `json:"path"`
	// Line and Column count from 1; 0 = the whole document.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Message describes what is wrong and what is expected. It never contains the value of a variable or a secret.
	Message string `json:"message"`
	// Suggestion is the word that was probably meant, or "".
	Suggestion string `json:"suggestion"`
}

// String returns the problem in one line: line:column: path: message.
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

// Error is all problems of a document, in the order of their positions.
type Error struct {
	// File is the name of the document; it may be empty.
	File     string
	Problems []Problem
}

// Error returns one line for each problem: file:line:column: path: message. Editors recognise this format.
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

// minHidden is the length, in bytes, from which the value of a variable is hidden in problems. Shorter values are
// often parts of ordinary words.
const minHidden = 4

// HideValues returns err with a mask in place of the given values of secrets, wherever its problems contain them: a
// check after the variables were replaced cannot know which text came from one. It returns any other error unchanged.
func HideValues(err error, values []string) error {
	var configErr *Error
	if !errors.As(err, &configErr) {
		return err
	}
	hidden := &Error{File: configErr.File, Problems: slices.Clone(configErr.Problems)}
	for i := range hidden.Problems {
		p := &hidden.Problems[i]
		for _, v := range values {
			if len(v) >= minHidden {
				p.Path, p.Message = strings.ReplaceAll(p.Path, v, Mask), strings.ReplaceAll(p.Message, v, Mask)
				p.Suggestion = strings.ReplaceAll(p.Suggestion, v, Mask)
			}
		}
	}
	return hidden
}

// maxProblems bounds the problems that are reported: a document can have an error on every line.
const maxProblems = 100

// problems collects the problems of one document, at most maxProblems.
type problems struct {
	list    []Problem
	omitted int // further problems, only counted
}

// addProblem adds a problem, or counts it if there are too many.
func (ps *problems) addProblem(p Problem) {
	if ps.isFull() {
		ps.omitted++
		return
	}
	ps.list = append(ps.list, p)
}

// isFull reports whether further problems are only counted.
func (ps *problems) isFull() bool {
	return len(ps.list) >= maxProblems
}

// asError returns an [*Error] with the problems sorted by position, nil if there are none.
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
