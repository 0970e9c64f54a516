// Package document reads a YAML or JSON document that may be a tenant's: into a tree of bounded size without aliases,
// with the values of its variables, in which every value has a location, so that each problem has line, column and
// path. It decodes the tree into structs whose tags carry the rules; see [Field].
//
// It knows nothing of what the document configures. A problem never contains the value of a variable.
package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxBytes bounds the source of a document.
const MaxBytes = 1 << 20

// Bounds of the tree of a document. A document of a tenant is parsed in the process of all tenants, so that its cost is
// bounded before it is known. maxNodes counts the nodes of an alias each time it is used: nested aliases could
// otherwise expand a few lines to gigabytes ("billion laughs").
const (
	maxDepth = 64
	maxNodes = 80_000 // nodes of the expanded tree
)

// maxTextBytes bounds the bytes of all names and values together, counted each time that an alias or variable is
// used.
const maxTextBytes = 4 << 20

// tooMuchText is the problem of a document beyond maxTextBytes.
var tooMuchText = fmt.Sprintf("the document has more than %d MiB of text, aliases and variables counted each time", maxTextBytes>>20)

// tooManyValues is the problem of a document beyond maxNodes.
var tooManyValues = fmt.Sprintf("the document has more than %d values and comments, aliases counted each time", maxNodes)

// maxValues returns an upper bound for the number of values and comments in src, from the bytes that begin one or separate
// two values. A comment takes as much memory as a value. The YAML parser needs some hundred bytes of memory for each value and builds the tree before it can be
// counted, so that this check comes first. Ordinary prose contains few such bytes.
func maxValues(src []byte) int {
	count := func(c string) int { return bytes.Count(src, []byte(c)) }
	commas, colons := count(","), count(":")
	// Between two commas of a mapping are a key and a value, even if the colon is missing. Outside of braces a pair has
	// no comma and a line of its own.
	lines := 1 + count("\n") + count("\r") + count("\u0085") + count("\u2028") + count("\u2029")
	return count("[") + count("{") + count("-") + count("#") + 2*count("?") + commas + max(commas, colons) + min(colons, lines)
}

// EstimateMemory returns the bytes that the tree of src takes at most, about, before it is read.
func EstimateMemory(src []byte) int64 {
	const nodeBytes = 256 // measured: a node with its text and its place in its parent
	return int64(min(maxValues(src), maxNodes)) * nodeBytes
}

// Document is a YAML document as a tree without aliases and merge keys, with its variables replaced.
type Document struct {
	// Root is the mapping of the document, nil if the document is empty or cannot be read.
	Root *yaml.Node
	// fromVariable are the scalars with text from a variable. A problem never shows their text.
	fromVariable map[*yaml.Node]bool
	// missingVariable are the scalars with a missing variable. It is reported once; later checks ignore them.
	missingVariable map[*yaml.Node]bool
	// missing are the references to missing variables. Err reports those that are not in inert.
	missing []missingReference
	switches
	// rootType is the type that the root was decoded into, nil before.
	rootType reflect.Type
	// unsound are the paths of the values whose meaning is wrong, see [Document.IsUnsound].
	unsound  []*Path
	problems problems
}

// missingReference is a reference to a missing variable, with the message of its problem.
type missingReference struct {
	location Location
	message  string
}

// errStop ends the expansion of a document that is beyond its bounds. The problem is already recorded.
var errStop = errors.New("stop")

// Read parses src and replaces its variables by the values of lookup; with a nil lookup they stay as they are. A
// variable that lookup does not have is a problem that ends in missing, such as "is not set". [Document.Err] returns the
// problems.
func Read(src []byte, lookup func(name string) (string, bool), missing string) *Document {
	doc := &Document{fromVariable: map[*yaml.Node]bool{}, missingVariable: map[*yaml.Node]bool{}, switches: newSwitches()}
	if len(src) > MaxBytes {
		doc.problems.addProblem(Problem{Message: fmt.Sprintf("is %d bytes long; at most %d are read", len(src), MaxBytes)})
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
	e := expander{doc: doc, lookup: lookup, missing: missing}
	root, err := e.expandNode(raw, nil, 0)
	switch {
	case err != nil, IsNull(root):
	case root.Kind != yaml.MappingNode:
		doc.AddProblem(Location{Value: root}, "must be a mapping with keys such as llms and agents, not "+describeKind(root))
	default:
		doc.Root = root
	}
	return doc
}

// parseYAML returns the root of the only document in src, nil if there is none. It turns a panic of the parser into
// an error: the parser is a library and reads untrusted text.
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
	// yamlErrorForm matches an error of the YAML library: an optional line and a message.
	yamlErrorForm = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)
	// The library's parser counts lines from 0, its scanner from 1, and neither gives a number for the first line.
	// The forms distinguish them by their messages.
	yamlParserForm  = regexp.MustCompile(`^did not find expected (?:key|node content|'-' indicator|',' or|<)`)
	yamlScannerForm = regexp.MustCompile(`^(?:did not find|could not find|found|mapping values|block )`)
)

// syntaxProblem returns the problem for an error of the YAML library, with its line corrected and the column of the
// line's first character.
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
		if strings.Contains(m[2], "cannot start any token") && isTabIndented(src, p.Line) {
			p.Message += ": the line is indented with a tab, YAML takes spaces"
		}
	}
	return p
}

// isTabIndented reports whether the first character of a line that is not a space is a tab.
func isTabIndented(src []byte, line int) bool {
	lines := bytes.SplitN(src, []byte("\n"), line+1)
	return line > 0 && line <= len(lines) && bytes.HasPrefix(bytes.TrimLeft(lines[line-1], " "), []byte("\t"))
}

// firstColumn returns the column of the first character of a line that is not a space, because the library reports
// lines only. It is 0 for line 0.
func firstColumn(src []byte, line int) int {
	lines := bytes.SplitN(src, []byte("\n"), line+1)
	if line == 0 || line > len(lines) {
		return min(line, 1)
	}
	text := bytes.TrimRight(lines[line-1], " \r")
	return 1 + len(text) - len(bytes.TrimLeft(text, " "))
}

// expander replaces aliases and merge keys of a parsed tree by what they refer to, variables by their values. It
// counts nodes and bytes and stops beyond the bounds. It changes the nodes of the tree, and copies only those that an
// alias may need again, since a second tree takes as much memory as the first.
type expander struct {
	doc       *Document
	lookup    func(name string) (string, bool) // value of a variable; nil = variables stay
	missing   string                           // end of the message about a missing variable
	isShared  bool                             // the node has an anchor, or is below one or an alias
	nodeCount int                              // so far, aliases counted each time
	textBytes int                              // bytes of names and values so far
}

// expandNode returns n expanded, or a copy of it if it is or may be shared. n is at path p and depth levels below the
// root. The error is errStop.
func (e *expander) expandNode(n *yaml.Node, p *Path, depth int) (*yaml.Node, error) {
	line, column := n.Line, n.Column
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		defer func(before bool) { e.isShared = before }(e.isShared)
		e.isShared = true
	}
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if e.nodeCount++; e.nodeCount > maxNodes {
		return nil, e.stopReading(Location{p, nil, n}, tooManyValues)
	}
	if depth > maxDepth {
		return nil, e.stopReading(Location{p, nil, n}, fmt.Sprintf("is nested deeper than %d levels", maxDepth))
	}
	// A value that is an alias is where the alias is written; what is inside of it is where it was written.
	c, children := n, n.Content
	if e.isShared {
		c = copyNode(n)
		c.Line, c.Column = line, column
	} else {
		c.Content = children[:0] // no more children than there were are appended, each after it was read
	}
	if !hasKnownTag(n) {
		e.doc.AddProblem(Location{p, nil, n}, "has a tag that is not supported: leave it out")
	}
	switch n.Kind {
	case yaml.ScalarNode:
		e.expandScalar(c, p)
		if e.textBytes += len(c.Value); e.textBytes > maxTextBytes {
			return nil, e.stopReading(Location{p, nil, n}, tooMuchText)
		}
	case yaml.SequenceNode:
		for i, item := range children {
			x, err := e.expandNode(item, p.Item(i), depth+1)
			if err != nil {
				return nil, err
			}
			c.Content = append(c.Content, x)
		}
	case yaml.MappingNode:
		return c, e.expandMapping(c, children, p, depth)
	}
	return c, nil
}

// copyNode returns a copy of n without its children.
func copyNode(n *yaml.Node) *yaml.Node {
	return &yaml.Node{
		Kind: n.Kind, Style: n.Style, Tag: n.Tag, Value: n.Value, Line: n.Line, Column: n.Column,
		HeadComment: n.HeadComment, LineComment: n.LineComment, FootComment: n.FootComment,
	}
}

// stopReading replaces all problems by the one of a document beyond its bounds and returns errStop.
func (e *expander) stopReading(s Location, message string) error {
	e.doc.problems = problems{}
	e.doc.AddProblem(s, message)
	return errStop
}

// expandMapping fills the mapping c with the expanded pairs, keys and values in turn. Duplicate keys are problems. Merge keys come last,
// because they only add what the mapping does not have.
func (e *expander) expandMapping(c *yaml.Node, pairs []*yaml.Node, p *Path, depth int) error {
	seen := make(map[string]int, len(pairs)/2)
	var merges []*yaml.Node
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		isSharedKey := e.isShared || key.Kind == yaml.AliasNode || key.Anchor != ""
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		at := Location{p, nil, key}
		if key.Kind != yaml.ScalarNode {
			e.doc.AddProblem(at, "has a key that is not text")
			continue
		}
		if key.ShortTag() == "!!merge" {
			merges = append(merges, value)
			continue
		}
		child := p.Name(key.Value)
		at.Path = child
		if line, twice := seen[key.Value]; twice {
			e.doc.AddProblem(at, fmt.Sprintf("stands twice; the first is on line %d", line))
			continue
		}
		if e.lookup != nil && strings.Contains(key.Value, "${") {
			e.doc.AddProblem(at, "is a name with a variable; variables can stand in values only")
		}
		seen[key.Value] = key.Line
		x, err := e.expandNode(value, child, depth+1)
		if err != nil {
			return err
		}
		e.textBytes += len(key.Value)
		if isSharedKey {
			key = copyNode(key)
		}
		c.Content = append(c.Content, key, x)
	}
	for _, m := range merges {
		if err := e.mergeMapping(c, m, seen, p, depth); err != nil {
			return err
		}
	}
	return nil
}

// mergeMapping adds to c the pairs of m whose keys c does not have: the merge key << of YAML 1.1.
func (e *expander) mergeMapping(c, m *yaml.Node, seen map[string]int, p *Path, depth int) error {
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
			e.doc.AddProblem(Location{p, nil, m}, "has a << that is not a mapping")
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

// hasKnownTag reports whether n has no explicit tag, or one of the core schema that fits its kind. Other tags would
// make the library build other types.
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

// Err returns an [*Error] with the problems sorted by position, nil if there are none.
func (doc *Document) Err(file string) error {
	doc.addMissing()
	return doc.problems.asError(file)
}

// addMissing adds the problems of the missing variables that are needed.
func (doc *Document) addMissing() {
	for _, m := range doc.missing {
		if !doc.inert[m.location.Value] {
			doc.addPlaced(m.location, m.message, "")
		}
	}
	doc.missing = nil
}

// IsUnsound reports whether a value at or below p has a meaning that cannot be used, such as a name of nothing. A value
// that was only not read (an unknown key, a wrong type, a missing variable) has its default instead and is sound.
func (doc *Document) IsUnsound(p *Path) bool {
	return slices.ContainsFunc(doc.unsound, func(q *Path) bool { return q.isWithin(p) })
}

// CanBeRead reports whether the document has a tree, or is empty, and none of its problems was omitted because there are
// too many.
func (doc *Document) CanBeRead() bool {
	return (doc.Root != nil || len(doc.problems.list) == 0) && doc.problems.omitted == 0
}

// IsFromVariable reports whether the scalar n has text from a variable, which no message may show.
func (doc *Document) IsFromVariable(n *yaml.Node) bool { return doc.fromVariable[n] }

// IsMissingVariable reports whether the scalar n is empty because a variable is missing. That was reported.
func (doc *Document) IsMissingVariable(n *yaml.Node) bool { return doc.missingVariable[n] }

// AddProblem adds a problem at s.
func (doc *Document) AddProblem(s Location, message string) {
	doc.AddSuggestion(s, message, "", nil)
}

// AddSuggestion adds a problem at s, with the one of known that is most similar to word. Beyond maxProblems it only
// counts, since computing positions and suggestions costs time.
func (doc *Document) AddSuggestion(s Location, message, word string, known []string) {
	suggestion := ""
	if !doc.problems.isFull() {
		doc.unsound = append(doc.unsound, s.Path)
		suggestion = SuggestWord(word, known)
	}
	doc.addPlaced(s, message, suggestion)
}

// addPlaced adds a problem at s after which the value has its default. Beyond maxProblems it only counts.
func (doc *Document) addPlaced(s Location, message, suggestion string) {
	if doc.problems.isFull() {
		doc.problems.omitted++
		return
	}
	p := s.NewProblem(message)
	p.Suggestion = suggestion
	doc.problems.addProblem(p)
}

// HasValue reports whether the mapping n has a value for key that is not empty. A missing variable counts as a value,
// because it was reported before.
func (doc *Document) HasValue(n *yaml.Node, key string) bool {
	_, value := findKey(n, key)
	switch {
	case value == nil:
		return false
	case value.Kind != yaml.ScalarNode || doc.missingVariable[value]:
		return true
	}
	return value.Value != "" && !IsNull(value)
}

// IsNull reports whether n is absent or null.
func IsNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// describeKind returns how a message names the kind of n.
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
