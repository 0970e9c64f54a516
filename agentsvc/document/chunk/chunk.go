// Package chunk cuts the text of a document into chunks, the pieces that a search finds. [Cut] is a pure function: the
// same content and settings give the same chunks, in time and memory linear in the text. docs/documents-formats.md
// describes the strategies.
//
// A chunk does not mix places: the text is first divided where page, headings or sheet change (stretch.go), then each
// part is cut by size (size.go) or by topic (semantic.go).
package chunk

import (
	"strings"
	"unicode"

	"stoa/agentsvc/document"
)

// Version names the behaviour of this package. It is part of a document's recipe: a change of the chunks that the same
// content and settings give must change it, so that stores are cut again.
const Version = "1"

// The strategies.
const (
	Simple      = "simple"      // by size
	Overlapping = "overlapping" // by size, each chunk repeats the end of the one before it
	Semantic    = "semantic"    // where the topic changes
)

// Settings say how to cut. The fields are those of a store's key chunking, so that the one type converts to the other.
// Sizes are in characters. Values that are zero or contradict each other are replaced, see [Settings.normalize].
type Settings struct {
	Strategy      string
	Size          int // of a chunk; in the strategy semantic the size that is aimed at
	Overlap       int // what a chunk repeats of the one before it, in the strategy overlapping
	MinSize       int // shorter parts of a document are joined with the next part
	MaxSize       int // bounds Size, and the chunks of the strategy semantic
	PreserveWords bool
}

// Defaults of sizes that are not set.
const (
	defaultSize    = 1000
	defaultMaxSize = 2000
)

// normalize returns the settings with every value set: Size is at most MaxSize, and MinSize and Overlap are at most half of
// the largest chunk, so that each chunk has more new text than repeated text.
func (s Settings) normalize() Settings {
	if s.Strategy != Overlapping && s.Strategy != Semantic {
		s.Strategy = Simple
	}
	if s.Size <= 0 {
		s.Size = defaultSize
	}
	if s.MaxSize <= 0 {
		s.MaxSize = max(defaultMaxSize, s.Size)
	}
	s.Size = min(s.Size, s.MaxSize)
	if s.Strategy != Overlapping {
		s.Overlap = 0
	}
	s.Overlap = min(max(s.Overlap, 0), s.Size/2)
	s.MinSize = min(max(s.MinSize, 0), s.Size/2)
	return s
}

// Cut returns the chunks of c in their order, at most limit of them and one more, so that a document with too many costs no
// more than one with just as many as it may have. The text of a chunk is c.Text()[Start:End] and has no space at its ends;
// without overlap there is only white space between two chunks. c's texts must be valid UTF-8.
func Cut(c document.Content, s Settings, limit int64) []document.Chunk {
	s = s.normalize()
	text := c.Text()
	p := newPlaces(c, text)
	out := output{text: text, places: p, limit: limit}
	for _, group := range p.groupStretches(s.MinSize) {
		if out.isFull() {
			break
		}
		if s.Strategy == Semantic {
			cutByTopic(&out, group, s, isTable(c))
		} else {
			cutBySize(&out, group, s)
		}
	}
	return out.chunks
}

// isTable reports whether each line of c's text is a row of a table.
func isTable(c document.Content) bool {
	return strings.HasPrefix(c.MediaType, "text/csv") || strings.HasPrefix(c.MediaType, "text/tab-separated-values") ||
		len(c.Sections) > 0 && c.Sections[0].Place.Sheet != ""
}

// span is a part of the text, as byte offsets.
type span struct{ start, end int }

// output collects chunks.
type output struct {
	text   string
	places *places
	chunks []document.Chunk
	limit  int64
}

// isFull reports whether there are more chunks than the limit.
func (o *output) isFull() bool { return int64(len(o.chunks)) > o.limit }

// add adds the chunk of a span, without the white space at its ends. White space alone is no chunk, nor is text that the
// chunk before has.
func (o *output) add(s span) {
	text := o.text[s.start:s.end]
	trimmed := strings.TrimLeftFunc(text, unicode.IsSpace)
	start := s.start + len(text) - len(trimmed)
	trimmed = strings.TrimRightFunc(trimmed, unicode.IsSpace)
	end := start + len(trimmed)
	if n := len(o.chunks); trimmed == "" || n > 0 && end <= o.chunks[n-1].End {
		return
	}
	o.chunks = append(o.chunks, document.Chunk{Ordinal: len(o.chunks), Start: start, End: end, Place: o.places.placeOf(span{start, end}), Text: trimmed})
}
