package function

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/html"

	"stoa/agentsvc/pattern"
)

// maxTokenBytes bounds one tag of a page. The tokenizer keeps some 16 bytes for each byte of a tag.
const maxTokenBytes = 256 << 10

// hiddenElements are elements whose content is not part of the page's text.
var hiddenElements = []string{"script", "style", "title", "iframe", "noscript", "noembed", "noframes", "textarea", "template"}

// blockElements are elements that begin and end a paragraph. Elements with a case of their own in beginElement need not
// be listed.
var blockElements = []string{
	"address", "article", "aside", "body", "caption", "details", "div", "dl", "fieldset", "figcaption", "figure", "footer", "form", "header",
	"hgroup", "html", "legend", "main", "menu", "nav", "p", "section", "summary", "tr",
}

// inlineMarks are the Markdown marks around the text of an element.
var inlineMarks = map[string]string{"b": "**", "strong": "**", "i": "*", "em": "*"}

// convertHTML returns the text of a page as Markdown, at most limit bytes and one word. It builds no tree: it reads the
// tokens twice and writes them as they come, so that time and memory are linear in the size of the page, however deep
// its elements are nested. The first reading (findDataTables) decides about the tables, the second one (pageConverter)
// writes. work pays for both; the caller has begun a computation.
func convertHTML(work *pattern.StepBudget, page string, base *url.URL, limit int) (string, error) {
	// The page is read twice.
	work.AddBytes(2 * len(page))
	dataTables, err := findDataTables(work, page)
	if err != nil {
		return "", err
	}
	c := pageConverter{markdownWriter: markdownWriter{limit: limit}, base: base, dataTables: dataTables}
	for tokens := (pageTokens{rest: page, work: work}); !c.isFull(); {
		kind, err := tokens.next()
		if err != nil {
			return "", err
		}
		if kind == html.ErrorToken {
			break
		}
		c.convertToken(&tokens, kind)
	}
	// Elements that the page does not close end with it.
	c.endCode()
	c.endTable()
	c.suspendMarks()
	return c.out.String(), nil
}

// pageTokens iterates over the tokens of a page. It skips the content of hidden elements, and tags longer than
// maxTokenBytes, which the tokenizer would buffer. After such a tag it goes on with a new tokenizer.
type pageTokens struct {
	work *pattern.StepBudget
	// rest is the page from the first byte on that was not returned yet.
	rest string
	// tokenizer reads rest; nil: next creates a new one, after a skipped tag.
	tokenizer *html.Tokenizer
	// returned reports that the present tokenizer has returned a token.
	returned bool
	// name is that of the tag that next returned last.
	name string
	// hidden is the element whose content is being skipped, "" = none.
	hidden string
}

// next returns the kind of the next token, [html.ErrorToken] at the end of the page. The error is that of the budget.
func (t *pageTokens) next() (html.TokenType, error) {
	for {
		if t.tokenizer == nil {
			t.tokenizer = html.NewTokenizer(strings.NewReader(t.rest))
			// Beyond it the tokenizer fails with ErrBufferExceeded, which skipLongToken handles.
			t.tokenizer.SetMaxBuf(maxTokenBytes)
			t.returned = false
		}
		kind := t.tokenizer.Next()
		if kind == html.ErrorToken {
			if !errors.Is(t.tokenizer.Err(), html.ErrBufferExceeded) || t.rest == "" {
				return kind, nil
			}
			if err := t.skipLongToken(); err != nil {
				return kind, err
			}
			continue
		}
		// Raw must be read before TagName, which changes the buffer.
		size := len(t.tokenizer.Raw())
		t.rest, t.returned = t.rest[size:], true
		if err := t.work.SpendSteps(size); err != nil {
			return kind, err
		}
		if kind == html.StartTagToken || kind == html.EndTagToken || kind == html.SelfClosingTagToken {
			name, _ := t.tokenizer.TagName()
			t.name = string(name)
		}
		switch {
		// Comments and doctypes are dropped.
		case kind == html.CommentToken || kind == html.DoctypeToken:
		// Nothing in a hidden element is returned, also no nested tags.
		case t.hidden != "":
			if kind == html.EndTagToken && t.name == t.hidden {
				t.hidden = ""
			}
		case kind != html.EndTagToken && kind != html.TextToken && slices.Contains(hiddenElements, t.name):
			t.hidden = t.name
		default:
			return kind, nil
		}
	}
}

// skipLongToken continues after the tokenizer's buffer was exceeded: it skips the tag that is too long, or the rest of
// a hidden element. Of a text that is too long the tokenizer has returned the beginning; the rest becomes another
// token.
func (t *pageTokens) skipLongToken() error {
	size := len(t.rest)
	switch end := indexEndTag(t.rest, t.hidden); {
	case t.hidden != "" && end < 0:
	case t.hidden != "" && (end > 0 || t.returned):
		size = end
	case t.returned:
		size = 0
	default:
		t.hidden = ""
		// The tag is at least maxTokenBytes long: its end is searched behind them.
		from := min(size, maxTokenBytes)
		if end := strings.IndexByte(t.rest[from:], '>'); end >= 0 {
			size = from + end + 1
		}
	}
	t.rest, t.tokenizer = t.rest[size:], nil
	return t.work.SpendSteps(size)
}

// indexEndTag returns the offset of the element's end tag, -1 if there is none.
func indexEndTag(text, element string) int {
	for at := 0; ; at++ {
		n := strings.Index(text[at:], "</")
		if n < 0 {
			return -1
		}
		at += n
		if name := text[at+2:]; len(name) >= len(element) && strings.EqualFold(name[:len(element)], element) {
			return at
		}
	}
}

// attributes returns the values of the named attributes of the present start tag. It may be called once for a tag.
func (t *pageTokens) attributes(names ...string) (values map[string]string) {
	for more := true; more; {
		var key, value []byte
		key, value, more = t.tokenizer.TagAttr()
		if name := string(key); slices.Contains(names, name) {
			if values == nil {
				values = map[string]string{}
			}
			// The first of several attributes with one name counts, as in browsers.
			if _, repeated := values[name]; !repeated {
				values[name] = string(value)
			}
		}
	}
	return values
}

// findDataTables reports for each table of a page, in the order of the start tags, whether Markdown can represent it:
// it is not for layout, and its cells contain no blocks.
func findDataTables(work *pattern.StepBudget, page string) ([]bool, error) {
	var data []bool
	var open []int // indices into data of the tables that enclose the token
	for tokens := (pageTokens{rest: page, work: work}); ; {
		kind, err := tokens.next()
		if err != nil || kind == html.ErrorToken {
			return data, err
		}
		if kind == html.TextToken {
			continue
		}
		switch tokens.name {
		case "table":
			if kind == html.EndTagToken {
				open = open[:max(len(open)-1, 0)]
				continue
			}
			// A table in a cell takes lines of its own: the outer table cannot be written as one.
			if len(open) > 0 {
				data[open[len(open)-1]] = false
			}
			open = append(open, len(data))
			data = append(data, tokens.attributes("role")["role"] != "presentation")
		// Blocks in a cell need lines of their own, which a Markdown cell cannot have.
		case "hr", "ul", "ol", "blockquote", "pre", "h1", "h2", "h3", "h4", "h5", "h6":
			if len(open) > 0 {
				data[open[len(open)-1]] = false
			}
		}
	}
}

// pageConverter writes the tokens of a page as Markdown.
type pageConverter struct {
	markdownWriter
	base *url.URL
	// dataTables is the result of findDataTables, for the tables that have not begun yet.
	dataTables []bool
}

// convertToken writes one token.
func (c *pageConverter) convertToken(t *pageTokens, kind html.TokenType) {
	switch kind {
	case html.TextToken:
		c.writeText(string(t.tokenizer.Text()))
	case html.StartTagToken, html.SelfClosingTagToken:
		c.beginElement(t)
	case html.EndTagToken:
		c.endElement(t.name)
	}
}

// beginElement processes a start tag. Elements that Markdown cannot represent contribute their text only.
func (c *pageConverter) beginElement(t *pageTokens) {
	switch name := t.name; name {
	case "b", "strong", "i", "em":
		c.beginMark(name, inlineMarks[name], inlineMarks[name])
	case "a":
		// Links cannot be nested: a new one ends the one before.
		c.endMark(name)
		if href := t.attributes("href")["href"]; href != "" {
			c.beginMark(name, "[", "]("+c.resolveURL(href)+")")
		}
	// An image is written as a link with its description; it is not fetched.
	case "img":
		if a := t.attributes("src", "alt"); a["src"] != "" {
			c.writeInline("![" + strings.Join(strings.Fields(a["alt"]), " ") + "](" + c.resolveURL(a["src"]) + ")")
		}
	case "br":
		c.breakLine()
	case "hr":
		c.beginParagraph(2)
		c.writeInline("* * *")
		c.beginParagraph(2)
	case "code", "kbd", "samp", "tt", "var", "pre":
		c.beginCode(name, codeLanguage(t.attributes("class")["class"]))
	case "h1", "h2", "h3", "h4", "h5", "h6":
		// A heading that was not closed ends before the next one.
		c.endBlock("h", 2)
		c.beginBlock("h", strings.Repeat("#", int(name[1]-'0'))+" ", "")
	case "blockquote":
		c.beginBlock(name, "> ", "> ")
	case "ul", "ol":
		c.beginList(name, t.attributes("start")["start"])
	case "li":
		c.beginItem()
	// Items of definition lists and menus begin a line each.
	case "dt", "dd", "option":
		c.beginParagraph(1)
	case "table":
		c.beginParagraph(2)
		// A layout table is written as paragraphs.
		isData := len(c.dataTables) > 0 && c.dataTables[0]
		c.dataTables = c.dataTables[min(1, len(c.dataTables)):]
		if isData {
			c.table = &markdownTable{}
		}
	case "tr":
		c.endRow()
		c.beginParagraph(2)
	case "td", "th":
		// A cell of a layout table is separated by a space.
		if c.table == nil {
			c.spaceDue = true
			return
		}
		a := t.attributes("colspan", "rowspan")
		c.beginCell(parseSpan(a["colspan"]), parseSpan(a["rowspan"]))
	default:
		if slices.Contains(blockElements, name) {
			c.beginParagraph(2)
		}
	}
}

// endElement processes an end tag. An end tag without an open element of that name has no effect.
func (c *pageConverter) endElement(name string) {
	switch name {
	case "b", "strong", "i", "em", "a":
		c.endMark(name)
	case "code", "kbd", "samp", "tt", "var", "pre":
		if c.code != nil && (c.code.element == name || name == "pre") {
			c.endCode()
		}
	case "h1", "h2", "h3", "h4", "h5", "h6":
		c.endBlock("h", 2)
	case "blockquote", "ul", "ol":
		c.endBlock(name, 2)
	case "li":
		c.endBlock(name, 1)
	case "td", "th":
		c.endCell()
	case "tr":
		c.endRow()
		c.beginParagraph(2)
	case "table":
		c.endTable()
		c.beginParagraph(2)
	default:
		if slices.Contains(blockElements, name) {
			c.beginParagraph(2)
		}
	}
}

// urlEscaper escapes the characters that would end an address within Markdown's brackets.
var urlEscaper = strings.NewReplacer(" ", "%20", "\n", "%0A", "\t", "%09", "(", "%28", ")", "%29", "[", "%5B", "]", "%5D", "<", "%3C", ">", "%3E")

// resolveURL returns the absolute form of an address on the page, escaped for Markdown. Data URLs are not resolved.
func (c *pageConverter) resolveURL(ref string) string {
	ref = strings.TrimSpace(ref)
	if u, err := c.base.Parse(ref); err == nil && !strings.HasPrefix(ref, "data:") {
		ref = u.String()
	}
	return urlEscaper.Replace(ref)
}

// codeLanguage returns the language that a code element's class names, "" if none.
func codeLanguage(class string) string {
	for name := range strings.FieldsSeq(class) {
		for _, prefix := range []string{"language-", "lang-"} {
			if language, ok := strings.CutPrefix(name, prefix); ok {
				return language
			}
		}
	}
	return ""
}

// maxColumns bounds the columns of a table and the span of a cell, since a page of a few bytes may claim any number.
const maxColumns = 1000

// parseSpan returns the value of a colspan or rowspan attribute, between 1 and maxColumns; 1 if it is invalid.
func parseSpan(value string) int {
	n, err := strconv.Atoi(value)
	if err != nil {
		return 1
	}
	return min(max(n, 1), maxColumns)
}
