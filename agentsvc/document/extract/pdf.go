package extract

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ledongthuc/pdf"

	"stoa/agentsvc"
	"stoa/agentsvc/document"
)

// Bounds of a PDF's structure.
const (
	maxPageDepth    = 64      // nested nodes of the tree of pages
	maxFormDepth    = 8       // nested forms, drawings that pages share
	maxForms        = 100_000 // forms that are drawn, of all pages
	maxCachedFonts  = 1_000
	nodesPerPage    = 4     // nodes of the tree of pages for each allowed page
	maxCIDWidths    = 1e5   // widths of a font with many characters
	defaultCIDWidth = 1_000 // of a character without a width, in 1/1000 of the font size
	// maxPDFReads bounds the bytes that the library reads of one file. It reads objects again each time they are used,
	// so that this is many times the size of the file.
	maxPDFReads = 4 << 30
	// maxTableReads bounds the bytes that it reads to find the objects: it reads tables that name each other for ever.
	maxTableReads = 4 * MaxFileBytes
	// readBytes is the least that a read counts for, since short reads have a cost too.
	readBytes = 4 << 10
)

// readPDF reads a PDF: a section for each page with text.
func readPDF(b *builder, f file) error {
	data := repairPDF(f.data)
	source := &countedReader{Reader: bytes.NewReader(data), left: maxTableReads}
	r, err := pdf.NewReader(source, int64(len(data)))
	source.left = maxPDFReads
	if err != nil {
		if isProblem(err) {
			return err
		}
		if bytes.Contains(data, []byte("/Encrypt")) {
			return newProblem(Encrypted, "the PDF is encrypted: upload a copy without a password")
		}
		return newDamaged("it is not a complete PDF")
	}
	p := &pdfReader{b: b, fonts: map[string]*pdfFont{}}
	b.setTitle(r.Trailer().Key("Info").Key("Title").Text())
	p.readNode(r.Trailer().Key("Root").Key("Pages"), pdf.Value{}, 0)
	b.flush()
	switch {
	case len(b.content.Sections) > 0:
		return nil
	case p.failed > 0 && !p.hasImage:
		return newDamaged("none of its pages can be read")
	case p.hasImage:
		return newProblem(Scanned, "the PDF has images of pages and no text: upload a version with recognised text")
	}
	return newProblem(Empty, "the PDF has no text")
}

// repairPDF returns data as the library accepts it: from its signature to its end mark, as version 1.7. The library
// refuses PDF 2.0 and files with anything in front of the signature or behind the mark, which it could read otherwise.
func repairPDF(data []byte) []byte {
	if start := bytes.Index(data[:min(len(data), pdfHeaderBytes)], pdfSignature); start > 0 {
		data = data[start:]
	}
	if end := bytes.LastIndex(data, []byte("%%EOF")); end > 0 {
		data = data[:end+len("%%EOF")]
	}
	const header = "%PDF-1.7\n"
	if len(data) < len(header) {
		return data
	}
	return append([]byte(header), data[len(header):]...)
}

// countedReader panics with a problem when too much was read: the library takes errors for the end of the file.
type countedReader struct {
	*bytes.Reader
	left int64
}

// ReadAt reads from the file.
func (r *countedReader) ReadAt(p []byte, offset int64) (int, error) {
	if r.left -= int64(max(len(p), readBytes)); r.left < 0 {
		panic(newDamaged("its objects refer to each other in a circle"))
	}
	return r.Reader.ReadAt(p, offset)
}

// pdfReader reads the pages of a PDF in their order.
type pdfReader struct {
	b        *builder
	fonts    map[string]*pdfFont // by the text of their dictionary
	nodes    int                 // of the tree of pages, so far
	pages    int
	forms    int
	failed   int  // pages that could not be read to their end
	hasImage bool // some page shows an image
}

// readNode reads a node of the tree of pages: a page, or a list of nodes. The number of pages that the tree declares is
// not used. resources are those that the node inherits.
func (p *pdfReader) readNode(node, resources pdf.Value, depth int) {
	if p.nodes++; depth > maxPageDepth || p.nodes > nodesPerPage*p.b.limits.pages {
		panic(newDamaged("its list of pages contains itself"))
	}
	if own := node.Key("Resources"); !own.IsNull() {
		resources = own
	}
	if kids := node.Key("Kids"); kids.Kind() == pdf.Array {
		for i := range kids.Len() {
			p.readNode(kids.Index(i), resources, depth+1)
		}
		return
	}
	if node.Kind() != pdf.Dict {
		return
	}
	if p.pages++; p.pages > p.b.limits.pages {
		panic(newProblem(TooLarge, "the PDF has more than %d pages: split it", p.b.limits.pages))
	}
	p.b.setPlace(document.Place{Page: p.pages})
	p.readPage(node, resources)
}

// readPage reads a page. The library panics at content that it does not understand; what was read before stays.
func (p *pdfReader) readPage(page, resources pdf.Value) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case *agentsvc.Error:
			panic(problem)
		default:
			p.failed++
		}
	}()
	if content := page.Key("Contents"); !content.IsNull() {
		t := &pdfText{reader: p, ctm: identity, state: textState{scale: 1}}
		defer p.b.joinHyphens() // also after a panic
		t.interpret(content, resources, 0)
	}
}

// joinHyphens joins the words of the present section that are divided at the end of a line. A compound word whose hyphen
// is there by chance loses it: divided words are the more frequent ones, and a search does not find them otherwise.
func (b *builder) joinHyphens() {
	text := b.text.String()
	b.text.Reset()
	for {
		at := strings.Index(text, "-\n")
		if at < 0 {
			break
		}
		before, _ := utf8.DecodeLastRuneInString(text[:at])
		after, _ := utf8.DecodeRuneInString(text[at+2:])
		if unicode.IsLetter(before) && unicode.IsLower(after) {
			b.text.WriteString(text[:at])
		} else {
			b.text.WriteString(text[:at+2])
		}
		text = text[at+2:]
	}
	b.text.WriteString(text)
}

// font returns a font of a page or form, parsed once for all pages.
func (p *pdfReader) font(resources pdf.Value, name string) *pdfFont {
	v := resources.Key("Font").Key(name)
	key := v.String()
	if found := p.fonts[key]; found != nil {
		return found
	}
	if len(p.fonts) >= maxCachedFonts {
		clear(p.fonts)
	}
	f := newPDFFont(v)
	p.fonts[key] = f
	return f
}

// ligatures are characters that stand for two or three letters, as fonts have them: a search for the letters must find
// them.
var ligatures = strings.NewReplacer("\uFB00", "ff", "\uFB01", "fi", "\uFB02", "fl", "\uFB03", "ffi", "\uFB04", "ffl", "\uFB05", "st", "\uFB06", "st")

// pdfFont decodes the characters of a font and has their widths.
type pdfFont struct {
	encoder pdf.TextEncoding
	length  int               // bytes of a character
	texts   map[string]string // decoded characters
	widths  map[int]float64   // in 1/1000 of the font size, by code
	width   float64           // of other codes
	known   bool              // the font has widths
}

// newPDFFont returns a font from its dictionary.
func newPDFFont(v pdf.Value) *pdfFont {
	font := pdf.Font{V: v}
	f := &pdfFont{encoder: font.Encoder(), length: 1, texts: map[string]string{}, widths: map[int]float64{}, width: 500}
	if v.Key("Subtype").Name() == "Type0" {
		f.length = 2
		f.readCIDWidths(v.Key("DescendantFonts").Index(0))
		return f
	}
	first, widths := int(v.Key("FirstChar").Int64()), v.Key("Widths")
	for i := range min(widths.Len(), 256) {
		f.widths[first+i] = widths.Index(i).Float64()
		f.known = true
	}
	return f
}

// readCIDWidths reads the widths of a font with many characters: lists "first [width ...]" and ranges "first last
// width".
func (f *pdfFont) readCIDWidths(descendant pdf.Value) {
	f.width = defaultCIDWidth
	if width := descendant.Key("DW"); !width.IsNull() {
		f.width = width.Float64()
	}
	w := descendant.Key("W")
	f.known = true
	for i := 0; i+1 < w.Len() && len(f.widths) < maxCIDWidths; {
		first, second := int(w.Index(i).Int64()), w.Index(i+1)
		if second.Kind() == pdf.Array {
			for j := range min(second.Len(), maxCIDWidths) {
				f.widths[first+j] = second.Index(j).Float64()
			}
			i += 2
			continue
		}
		last, width := min(int(second.Int64()), first+1<<16), w.Index(i+2).Float64()
		for code := first; code <= last; code++ {
			f.widths[code] = width
		}
		i += 3
	}
}

// next returns the text and the code of the first character of raw, and the rest.
func (f *pdfFont) next(raw string) (text string, code int, rest string) {
	n := min(f.length, len(raw))
	for _, c := range []byte(raw[:n]) {
		code = code<<8 | int(c)
	}
	text, ok := f.texts[raw[:n]]
	if !ok {
		text = ligatures.Replace(f.encoder.Decode(raw[:n]))
		f.texts[raw[:n]] = text
	}
	return text, code, raw[n:]
}

// advance returns how far a character moves the position, in units of the font size.
func (f *pdfFont) advance(code int) float64 {
	if width, ok := f.widths[code]; ok {
		return width / 1000
	}
	return f.width / 1000
}
