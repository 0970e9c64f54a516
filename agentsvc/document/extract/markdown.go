package extract

import (
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"stoa/agentsvc/document"
)

// maxFrontMatter bounds the settings in front of a Markdown text, in bytes.
const maxFrontMatter = 64 << 10

// readMarkdown reads Markdown: a section for each heading, with the source as its text, so that lists, tables and code
// stay as their author wrote them.
func readMarkdown(b *builder, f file) error {
	source, err := decodeText(f.data, f.charset)
	if err != nil {
		return err
	}
	source = normalizeBreaks(source)
	body := len(source) - len(cutFrontMatter(b, source))
	bytes := []byte(source[body:])
	var headings outline
	written, line := 0, 1
	writeUntil := func(end int) {
		b.setPlace(document.Place{Heading: headings.path(), Line: line})
		b.write(source[written:end])
		line += strings.Count(source[written:end], "\n")
		written = end
	}
	root := goldmark.DefaultParser().Parse(text.NewReader(bytes))
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		heading, ok := n.(*ast.Heading)
		if !ok || heading.Lines().Len() == 0 {
			continue
		}
		// The segment of a heading begins after its marks: the section begins with the line.
		start := body + heading.Lines().At(0).Start
		start = strings.LastIndexByte(source[:start], '\n') + 1
		if start > written {
			writeUntil(start)
		}
		title := headingText(heading, bytes)
		headings.add(heading.Level, title)
		if heading.Level == 1 {
			b.setTitle(title)
		}
	}
	writeUntil(len(source))
	return nil
}

// headingText returns the text of a heading without marks.
func headingText(heading *ast.Heading, source []byte) string {
	var title strings.Builder
	_ = ast.Walk(heading, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				title.Write(n.Segment.Value(source))
				if n.SoftLineBreak() || n.HardLineBreak() {
					title.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				title.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return title.String()
}

// cutFrontMatter returns source without the YAML settings between two lines of --- at its beginning, and takes the
// title from them.
func cutFrontMatter(b *builder, source string) string {
	rest, ok := strings.CutPrefix(source, "---\n")
	if !ok {
		return source
	}
	end := strings.Index(rest[:min(len(rest), maxFrontMatter)], "\n---\n")
	if end < 0 {
		return source
	}
	for line := range strings.Lines(rest[:end]) {
		if title, ok := strings.CutPrefix(line, "title:"); ok {
			b.setTitle(strings.Trim(strings.TrimSpace(title), `"'`))
		}
	}
	return rest[end+len("\n---\n"):]
}
