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
	maxSize  = 1 << 20
	maxDepth = 64
	maxNodes = 100_000
)

// maxText bounds the bytes of all names and values together, aliases and variables counted each time that they stand for something:
// a document of a few kilobytes can otherwise mean gigabytes.
const maxText = 4 << 20

var tooMuchText = fmt.Sprintf("the document has more than %d MiB of text, aliases and variables counted each time", maxText>>20)

var tooManyValues = fmt.Sprintf("the document has more than %d values, aliases counted each time", maxNodes)

// mayHold returns how many values src may hold at most, by the bytes that begin one or stand between two. The parser takes some
// hundred bytes of memory for each value, before anybody counts them. In prose such bytes are few.
func mayHold(src []byte) int {
	count := func(c string) int { return bytes.Count(src, []byte(c)) }
	commas := count(",")
	// What stands between two commas of a mapping is a key and its value, though the colon may be missing.
	return count("[") + count("{") + count("-") + count("?") + commas + max(commas, count(":"))
}

// document is a YAML document as a tree without aliases and merges, its variables filled in.
type document struct {
	root     *yaml.Node
	filled   map[*yaml.Node]bool // scalars whose text came from a variable: never to be shown
	broken   map[*yaml.Node]bool // scalars whose variable is missing: told once, then left alone
	problems problems
}

// errStop ends the reading of a document that is beyond its bounds.
var errStop = errors.New("stop")

// read parses src and fills in its variables by fill; nil leaves them as they stand. A variable that fill
// lacks is a problem which says that it is missing: "is not set". The root is nil for an empty document and
// for one that cannot be read at all, which is then a problem.
func read(src []byte, fill func(name string) (string, bool), missing string) *document {
	doc := &document{filled: map[*yaml.Node]bool{}, broken: map[*yaml.Node]bool{}}
	if len(src) > maxSize {
		doc.problems.add(Problem{Message: fmt.Sprintf("is %d bytes long; at most %d are read", len(src), maxSize)})
		return doc
	}
	if mayHold(src) > maxNodes {
		doc.problems.add(Problem{Message: tooManyValues})
		return doc
	}
	raw, err := parseYAML(src)
	if err != nil {
		doc.problems.add(syntaxProblem(src, err))
		return doc
	}
	if raw == nil {
		return doc
	}
	e := expander{doc: doc, fill: fill, missing: missing}
	root, err := e.expand(raw, nil, 0)
	switch {
	case err != nil, isNull(root):
	case root.Kind != yaml.MappingNode:
		doc.problem(spot{value: root}, "must be a mapping with keys such as llms and agents, not "+kindOf(root))
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
	yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	// What the library's parser says, whose lines count from 0, and what its scanner says, whose lines count from 1. Neither
	// names the first line.
	yamlParser  = regexp.MustCompile(`^did not find expected (?:key|node content|'-' indicator|',' or|<)`)
	yamlScanner = regexp.MustCompile(`^(?:did not find|could not find|found|mapping values|block )`)
)

func syntaxProblem(src []byte, err error) Problem {
	p := Problem{Message: "is not valid YAML"}
	text := strings.ToValidUTF8(strings.ReplaceAll(err.Error(), "\n", " "), "?")
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		switch p.Line, _ = strconv.Atoi(m[1]); {
		case yamlParser.MatchString(m[2]):
			p.Line++
		case p.Line == 0 && yamlScanner.MatchString(m[2]):
			p.Line = 1
		}
		p.Column = begins(src, p.Line)
		p.Message += ": " + m[2]
	}
	return p
}

// begins returns the column where a line begins to say something: the library tells lines alone. It is 0 for line 0.
func begins(src []byte, line int) int {
	lines := bytes.SplitN(src, []byte("\n"), line+1)
	if line == 0 || line > len(lines) {
		return min(line, 1)
	}
	text := bytes.TrimRight(lines[line-1], " \r")
	return 1 + len(text) - len(bytes.TrimLeft(text, " "))
}

// expander copies a parsed tree: aliases and merges become what they stand for, variables are filled in.
type expander struct {
	doc     *document
	fill    func(name string) (string, bool)
	missing string
	nodes   int
	text    int // bytes so far
}

func (e *expander) expand(n *yaml.Node, p *path, depth int) (*yaml.Node, error) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if e.nodes++; e.nodes > maxNodes {
		return nil, e.stop(spot{p, nil, n}, tooManyValues)
	}
	if depth > maxDepth {
		return nil, e.stop(spot{p, nil, n}, fmt.Sprintf("is nested deeper than %d levels", maxDepth))
	}
	c := copyOf(n)
	if !knownTag(n) {
		e.doc.problem(spot{p, nil, n}, "has a tag that is not supported: leave it out")
	}
	switch n.Kind {
	case yaml.ScalarNode:
		e.scalar(c, p)
		if e.text += len(c.Value); e.text > maxText {
			return nil, e.stop(spot{p, nil, n}, tooMuchText)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			x, err := e.expand(item, &path{p, strconv.Itoa(i), itemPart}, depth+1)
			if err != nil {
				return nil, err
			}
			c.Content = append(c.Content, x)
		}
	case yaml.MappingNode:
		return c, e.mapping(c, n, p, depth)
	}
	return c, nil
}

// copyOf returns n without what it contains.
func copyOf(n *yaml.Node) *yaml.Node {
	return &yaml.Node{
		Kind: n.Kind, Style: n.Style, Tag: n.Tag, Value: n.Value, Line: n.Line, Column: n.Column,
		HeadComment: n.HeadComment, LineComment: n.LineComment, FootComment: n.FootComment,
	}
}

// stop ends the reading: the document is beyond a bound, and that is all there is to say of it.
func (e *expander) stop(s spot, message string) error {
	e.doc.problems = problems{}
	e.doc.problem(s, message)
	return errStop
}

func (e *expander) mapping(c, n *yaml.Node, p *path, depth int) error {
	seen := make(map[string]int, len(n.Content)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		at := spot{p, nil, key}
		if key.Kind != yaml.ScalarNode {
			e.doc.problem(at, "has a key that is not text")
			continue
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		below := &path{p, key.Value, namePart}
		at.path = below
		if line, twice := seen[key.Value]; twice {
			e.doc.problem(at, fmt.Sprintf("stands twice; the first is on line %d", line))
			continue
		}
		if e.fill != nil && strings.Contains(key.Value, "${") {
			e.doc.problem(at, "is a name with a variable; variables can stand in values only")
		}
		seen[key.Value] = key.Line
		x, err := e.expand(value, below, depth+1)
		if err != nil {
			return err
		}
		e.text += len(key.Value)
		c.Content = append(c.Content, copyOf(key), x)
	}
	for _, m := range merges {
		if err := e.merge(c, m, seen, p, depth); err != nil {
			return err
		}
	}
	return nil
}

// merge adds to c the pairs of m whose keys c does not have: what `<<` means.
func (e *expander) merge(c, m *yaml.Node, seen map[string]int, p *path, depth int) error {
	from, err := e.expand(m, p, depth+1)
	if err != nil {
		return err
	}
	sources := []*yaml.Node{from}
	if from.Kind == yaml.SequenceNode {
		sources = from.Content
	}
	for _, source := range sources {
		if source.Kind != yaml.MappingNode {
			e.doc.problem(spot{p, nil, m}, "has a << that is not a mapping")
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

func knownTag(n *yaml.Node) bool {
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

// problem records what is wrong at s.
func (doc *document) problem(s spot, message string) {
	doc.suggest(s, message, "", nil)
}

// suggest records what is wrong at s, and which of known was probably meant by word.
func (doc *document) suggest(s spot, message, word string, known []string) {
	if doc.problems.full() {
		doc.problems.more++
		return
	}
	line, column := s.position()
	doc.problems.add(Problem{s.path.String(), line, column, message, Suggest(word, known)})
}

// has reports whether the mapping n gives key a value that is not empty.
func (doc *document) has(n *yaml.Node, key string) bool {
	_, value := lookup(n, key)
	switch {
	case value == nil:
		return false
	case value.Kind != yaml.ScalarNode || doc.broken[value]:
		return true
	}
	return value.Value != "" && !isNull(value)
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func kindOf(n *yaml.Node) string {
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
