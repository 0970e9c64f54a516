package agentsvc

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxSources bounds the passages of one turn that have a number, and so the citations of its answer.
const MaxSources = 200

// Source is a passage of a document that the model of a turn is given. N is its number in the turn, from 1: the answer
// refers to it by the mark [N].
type Source struct {
	N int
	// Passage identifies the passage in its store. Together with Store and Document it is the same in each search.
	Passage  string
	Store    string
	Document string
	Title    string
	Page     int // from 1, 0 = unknown
	Heading  string
	URL      string
	Quote    string // the beginning of the passage
}

// Delimiter returns the beginning of the line that quotes the passage, in the prompt or in the result of a tool. A line
// of a document cannot look the same, because the quoted text is a JSON string.
func (s Source) Delimiter() string { return fmt.Sprintf(`{"n":%d,`, s.N) }

// ToMetadata returns the citation of s in a message's metadata, in the form that [encoding/json] decodes into an any.
func (s Source) ToMetadata() map[string]any {
	m := map[string]any{"n": float64(s.N), "store": s.Store, "document": s.Document, "quote": s.Quote}
	for name, text := range map[string]string{"title": s.Title, "heading": s.Heading, "url": s.URL} {
		if text != "" {
			m[name] = text
		}
	}
	if s.Page > 0 {
		m["page"] = float64(s.Page)
	}
	return m
}

// CitationsKey is the key of a final message's metadata with its citations: a list of [Source.ToMetadata].
const CitationsKey = "citations"

// Sources are passages that got their numbers in one step of a turn, as a fact on the task's log.
type Sources struct {
	List []Source
	// InPrompt reports that the passages stand in the system prompt. Others are given by the result of a tool call,
	// which may fail or be cut.
	InPrompt bool
}

// SourceRecorder gives passages their numbers in the turn and records them with its next fact. It may be called from
// several goroutines. A passage that has a number keeps it; 0 means that the turn has [MaxSources] already. Nil counts
// from 1 and records nothing.
type SourceRecorder func(found []Source, inPrompt bool) (numbers []int)

// Number returns the numbers of the passages, by r if it is not nil.
func (r SourceRecorder) Number(found []Source, inPrompt bool) []int {
	if r != nil {
		return r(found, inPrompt)
	}
	numbers := make([]int, len(found))
	for i := range numbers {
		if i < MaxSources {
			numbers[i] = i + 1
		}
	}
	return numbers
}

var (
	// markForm is a mark in an answer: [2] or [1, 3].
	markForm = regexp.MustCompile(`\[(\d{1,3}(?:\s*,\s*\d{1,3})*)\]`)
	// codeForm is code in an answer, whose brackets are no marks.
	codeForm = regexp.MustCompile("(?s)```.*?(?:```|$)|`[^`\n]*`")
)

// CiteSources returns the sources that an answer refers to by its marks, in the order of their numbers. Marks without a
// source and brackets in code are ignored. An answer without a mark of a source refers to all of them.
func CiteSources(answer string, given []Source) []Source {
	marked := map[int]bool{}
	for _, m := range markForm.FindAllStringSubmatch(codeForm.ReplaceAllString(answer, ""), -1) {
		for n := range strings.SplitSeq(m[1], ",") {
			if n, err := strconv.Atoi(strings.TrimSpace(n)); err == nil {
				marked[n] = true
			}
		}
	}
	cited := slices.Clone(given)
	slices.SortFunc(cited, func(a, b Source) int { return a.N - b.N })
	if slices.ContainsFunc(cited, func(s Source) bool { return marked[s.N] }) {
		cited = slices.DeleteFunc(cited, func(s Source) bool { return !marked[s.N] })
	}
	return cited
}
