package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a document. The number of nodes counts aliases each time they are used, which is what stops
// a few lines from growing into gigabytes.
const (
	maxDocumentBytes = 1 << 20
	maxDepth         = 64
	maxNodes         = 100_000
)

// maxTextBytes bounds the bytes of all names and values together, aliases and variables counted each time that they stand for something:
// a document of a few kilobytes can otherwise mean gigabytes.
const maxTextBytes = 4 << 20

var tooMuchText = fmt.Sprintf("the document has more than %d MiB of text, aliases and variables counted each time", maxTextBytes>>20)

var tooManyValues = fmt.Sprintf("the document has more than %d values, aliases counted each time", maxNodes)

// maxValues returns how many values src may hold at most, by the bytes that begin one or stand between two. The parser takes some
// hundred bytes of memory for each value, before anybody counts them. In prose such bytes are few.
func maxValues(src []byte) int {
	count := func(c string) int { return bytes.Count(src, []byte(c)) }
	commas := count(",")
	// What stands between two commas of a mapping is a key and its value, though the colon may be missing.
	return count("[") + count("{") + count("-") + count("?") + commas + max(commas, count(":"))
}

// document is a YAML document as a tree without aliases and merges, its variables filled in.
type document struct {
	root            *yaml.Node
	fromVariable    map[*yaml.Node]bool // scalars whose text came from a variable: never to be shown
	missingVariable map[*yaml.Node]bool // scalars whose variable is missing: told once, then left alone
	problems        problems
}

// errStop ends the reading of a document that is beyond its bounds.
var errStop = errors.New("stop")

// readDocument parses src and fills in its variables by fill; nil leaves them as they stand. A variable that fill
// lacks is a problem which says that it is missing: "is not set". The root is nil for an empty document and
// for one that cannot be read at all, which is then a problem.
func readDocument(src []byte, fill func(name string) (string, bool), missing string) *document {
	doc := &document{fromVariable: map[*yaml.Node]bool{}, missingVariable: map[*yaml.Node]bool{}}
	if len(src) > maxDocumentBytes {
		doc.problems.addProblem(Problem{Message: fmt.Sprintf("is %d bytes long; at most %d are read", len(src), maxDocumentBytes)})
		return doc
	}
	if maxValues(src) > maxNodes {
		doc.problems.addProblem(Problem{Message: tooManyValues})
		return doc
	}
	raw, err := parseYAML(src)
	if err != nil {
		doc.problems.addProblem(syntaxProblem(src, err))
		return doc
	}
	if raw == nil {
		return doc
	}
	e := expander{doc: doc, lookup: fill, missing: missing}
	root, err := e.expandNode(raw, nil, 0)
	switch {
	case err != nil, isNull(root):
	case root.Kind != yaml.MappingNode:
		doc.addProblem(location{value: root}, "must be a mapping with keys such as llms and agents, not "+describeKind(root))
	default:
		doc.root = root
	}
	return doc
}

// parseYAML returns the only document in src, or nil if there is none. The parser is the one place where a
// panic becomes an error: it reads what strangers send, and it is not ours.
func parseYAML(src []byte) (n *yaml.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			n, err = nil, errors.New("yaml: the document cannot be read")
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(src))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); err == nil {
		return nil, fmt.Errorf("yaml: line %d: a second document starts here; a configuration is one document", second.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

var (
	yamlErrorForm = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	// What the library's parser says, whose lines count from 0, and what its scanner says, whose lines count from 1. Neither
	// names the first line.
	yamlParserForm  = regexp.MustCompile(`^did not find expected (?:key|node content|'-' indicator|',' or|<)`)
	yamlScannerForm = regexp.MustCompile(`^(?:did not find|could not find|found|mapping values|block )`)
)

func syntaxProblem(src []byte, err error) Problem {
	p := Problem{Message: "is not valid YAML"}
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\n", " "), "?")
	if m := yamlErrorForm.FindStringSubmatch(text); m != nil {
		switch p.Line, _ = strconv.Atoi(m[1]); {
		case yamlParserForm.MatchString(m[2]):
			p.Line++
		case p.Line == 0 && yamlScannerForm.MatchString(m[2]):
			p.Line = 1
		}
		p.Column = firstColumn(src, p.Line)
		p.Message += ": " + m[2]
	}
	return p
}

// firstColumn returns the column where a line begins to say something: the library tells lines alone. It is 0 for line 0.
func firstColumn(src []byte, line int) int {
	lines := bytes.SplitN(src, []byte("\n"), line+1)
	if line == 0 || line > len(lines) {
		return min(line, 1)
	}
	text := bytes.TrimRight(lines[line-1], " \r")
	return 1 + len(text) - len(bytes.TrimLeft(text, " "))
}

// expander copies a parsed tree: aliases and merges become what they stand for, variables are filled in.
type expander struct {
	doc       *document
	lookup    func(name string) (string, bool)
	missing   string
	nodeCount int
	textBytes int // bytes so far
}

func (e *expander) expandNode(n *yaml.Node, p *path, depth int) (*yaml.Node, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if e.nodeCount++; e.nodeCount > maxNodes {
		return nil, e.stopReading(location{p, nil, n}, tooManyValues)
	}
	if depth > maxDepth {
		return nil, e.stopReading(location{p, nil, n}, fmt.Sprintf("is nested deeper than %d levels", maxDepth))
	}
	c := copyNode(n)
	if !hasKnownTag(n) {
		e.doc.addProblem(location{p, nil, n}, "has a tag that is not supported: leave it out")
	}
	switch n.Kind {
	case yaml.ScalarNode:
		e.expandScalar(c, p)
		if e.textBytes += len(c.Value); e.textBytes > maxTextBytes {
			return nil, e.stopReading(location{p, nil, n}, tooMuchText)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			x, err := e.expandNode(item, &path{p, strconv.Itoa(i), itemPart}, depth+1)
			if err != nil {
				return nil, err
			}
			c.Content = append(c.Content, x)
		}
	case yaml.MappingNode:
		return c, e.expandMapping(c, n, p, depth)
	}
	return c, nil
}

// copyNode returns n without what it contains.
func copyNode(n *yaml.Node) *yaml.Node {
	return &yaml.Node{
		Kind: n.Kind, Style: n.Style, Tag: n.Tag, Value: n.Value, Line: n.Line, Column: n.Column,
		HeadComment: n.HeadComment, LineComment: n.LineComment, FootComment: n.FootComment,
	}
}

// stopReading ends the reading: the document is beyond a bound, and that is all there is to say of it.
func (e *expander) stopReading(s location, message string) error {
	e.doc.problems = problems{}
	e.doc.addProblem(s, message)
	return errStop
}

func (e *expander) expandMapping(c, n *yaml.Node, p *path, depth int) error {
	seen := make(map[string]int, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		at := location{p, nil, key}
		if key.Kind != yaml.ScalarNode {
			e.doc.addProblem(at, "has a key that is not text")
			continue
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		child := &path{p, key.Value, namePart}
		at.path = child
		if line, twice := seen[key.Value]; twice {
			e.doc.addProblem(at, fmt.Sprintf("stands twice; the first is on line %d", line))
			continue
		}
		if e.lookup != nil && strings.Contains(key.Value, "${") {
			e.doc.addProblem(at, "is a name with a variable; variables can stand in values only")
		}
		seen[key.Value] = key.Line
		x, err := e.expandNode(value, child, depth+1)
		if err != nil {
			return err
		}
		e.textBytes += len(key.Value)
		c.Content = append(c.Content, copyNode(key), x)
	}
	for _, m := range merges {
		if err := e.mergeMapping(c, m, seen, p, depth); err != nil {
			return err
		}
	}
	return nil
}

// mergeMapping adds to c the pairs of m whose keys c does not have: what `<<` means.
func (e *expander) mergeMapping(c, m *yaml.Node, seen map[string]int, p *path, depth int) error {
	from, err := e.expandNode(m, p, depth+1)
	if err != nil {
		return err
	}
	sources := []*yaml.Node{from}
	if from.Kind == yaml.SequenceNode {
		sources = from.Content
	}
	for _, source := range sources {
		if source.Kind != yaml.MappingNode {
			e.doc.addProblem(location{p, nil, m}, "has a << that is not a mapping")
			return nil
		}
		for i := 0; i+1 < len(source.Content); i += 2 {
			key := source.Content[i]
			if _, has := seen[key.Value]; !has {
				seen[key.Value] = key.Line
				c.Content = append(c.Content, key, source.Content[i+1])
			}
		}
	}
	return nil
}

func hasKnownTag(n *yaml.Node) bool {
	if n.Style&yaml.TaggedStyle == 0 {
		return true
	}
	switch n.ShortTag() {
	case "!!map", "!!seq":
		return n.Kind != yaml.ScalarNode
	case "!!str", "!!int", "!!float", "!!bool", "!!null", "!!merge":
		return n.Kind == yaml.ScalarNode
	}
	return false
}

// addProblem records what is wrong at s.
func (doc *document) addProblem(s location, message string) {
	doc.addSuggestion(s, message, "", nil)
}

// addSuggestion records what is wrong at s, and which of known was probably meant by word.
func (doc *document) addSuggestion(s location, message, word string, known []string) {
	if doc.problems.isFull() {
		doc.problems.omitted++
		return
	}
	line, column := s.position()
	doc.problems.addProblem(Problem{s.path.String(), line, column, message, SuggestWord(word, known)})
}

// hasValue reports whether the mapping n gives key a value that is not empty.
func (doc *document) hasValue(n *yaml.Node, key string) bool {
	_, value := findKey(n, key)
	switch {
	case value == nil:
		return false
	case value.Kind != yaml.ScalarNode || doc.missingVariable[value]:
		return true
	}
	return value.Value != "" && !isNull(value)
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func describeKind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "true or false"
	case "!!null":
		return "nothing"
	}
	return "text"
}
