// Package document has the types of retrieval: documents, what was read from them, and what a search returns. It does no
// I/O. A newcomer reads on in this order:
//
//   - source lists the documents of a store (a folder, tables, an address), extract reads a file into sections, chunk
//     cuts sections into chunks.
//   - corpus has the rows: documents, chunks, vectors, who may read them, and the passes that index them. The rows are
//     the source of truth; an external vector store only suggests chunks.
//   - indexing carries out passes: read, cut, embed, commit, one document at a time under a lease.
//   - retrieval searches: by words and by vectors, fused, filtered by caller, and joined with their neighbours.
//
// docs/documents.md describes the settings and the API.
package document

import (
	"strings"
	"time"

	"stoa/agentsvc"
)

// Place is where a text stands in its document, as far as the reader of its format knows. Zero fields are unknown; a
// place is never guessed.
type Place struct {
	Page    int    // of a paginated format, from 1
	Heading string // the path of headings above the text, joined by " > "
	Sheet   string // of a spreadsheet
	Line    int    // of a text without pages, from 1
}

// Section is a stretch of a document's text that has one place.
type Section struct {
	Text  string
	Place Place
}

// Content is what was read from a document, in reading order.
type Content struct {
	Title     string // "" if the format has none
	MediaType string
	Sections  []Section
}

// Text returns the joined text of the sections, to which the offsets of chunks refer. Readers of formats end each
// section with a line break, so that nothing is written between two sections.
func (c Content) Text() string {
	if len(c.Sections) == 1 {
		return c.Sections[0].Text
	}
	var text strings.Builder
	size := 0
	for _, s := range c.Sections {
		size += len(s.Text)
	}
	text.Grow(size)
	for _, s := range c.Sections {
		text.WriteString(s.Text)
	}
	return text.String()
}

// Chunk is a piece of a document that is found as one.
type Chunk struct {
	Ordinal    int // in the document, from 0
	Start, End int // byte offsets in [Content.Text]
	Place      Place
	Text       string
}

// EmbeddedText returns the text that is embedded for a chunk: the document's title and the headings before its own
// text, since a chunk alone often does not name what it is about.
func (c Chunk) EmbeddedText(title string) string {
	text := c.Text
	if c.Place.Heading != "" {
		text = c.Place.Heading + "\n" + text
	}
	if title != "" {
		text = title + "\n" + text
	}
	return text
}

// Access says who of an app's callers may read a document. Without subjects and roles everyone may.
type Access struct {
	Subjects []string `json:"subjects,omitempty"`
	Roles    []string `json:"roles,omitempty"`
}

// IsOpen reports whether every caller of the app may read the document.
func (a Access) IsOpen() bool { return len(a.Subjects) == 0 && len(a.Roles) == 0 }

// Reader is a caller whose access decides what a search returns. A reader with All set reads every document.
type Reader struct {
	Owner agentsvc.Owner
	Roles []string
	All   bool
}

// State is that of a document's indexing.
type State string

// The states.
const (
	Pending  State = "pending"  // waits for a pass; the version before it stays searchable
	Indexed  State = "indexed"  // searchable
	Failed   State = "failed"   // cannot be indexed, for the reason in Document.Error
	Deleting State = "deleting" // invisible; what external stores have of it is being removed
)

// Document is a document's record. ID is its key in the store: a path, a row's id or what an uploader chose.
type Document struct {
	Store     string
	ID        string
	Title     string
	MediaType string
	Bytes     int64
	State     State
	// Error is why the document failed, in words for its uploader.
	Error       string
	Chunks      int
	ContentHash string // hex SHA-256 of the content
	// SourceVersion is what its source names its version with (an ETag, a time of change), "" if it does not.
	SourceVersion string
	URL           string
	Metadata      map[string]string
	Access        Access
	UpdatedAt     time.Time
}

// StoreStatus is the state of a document store as a whole.
type StoreStatus struct {
	Name   string
	Source string // its type
	// State is ready, indexing, or failed if its source cannot be read.
	State                              string
	Error                              string
	Documents, Chunks, Pending, Failed int64
	// Generation counts the rebuilds of the store for another embedder or chunking. It is not the app's.
	Generation int64
	Embedder   string // the model of the vectors, "" = searched by words only
	// VectorIndex is how a search compares vectors that the platform's database has: [Exact] or [HNSW]; "" if it has none.
	VectorIndex string
	// EmbeddedTokens is what embedding has used, of all generations.
	EmbeddedTokens int64
	// OldestPending is when the document that waits longest was received; zero if none waits.
	OldestPending time.Time
	UpdatedAt     time.Time
}

// The ways to compare vectors: with each of them, or by the store's approximate index.
const (
	Exact = "exact"
	HNSW  = "hnsw"
)

// Mode is how a store is searched.
type Mode string

// The modes. Hybrid fuses the other two.
const (
	Hybrid Mode = "hybrid"
	Vector Mode = "vector"
	Text   Mode = "text"
)

// Query is a search in one store.
type Query struct {
	Text  string
	Limit int
	Mode  Mode // "" = the best that the store has
	// Filter selects documents whose metadata has every value.
	Filter map[string]string
	Reader Reader
}

// Scores are the parts of a passage's score; nil for a part that did not find it.
type Scores struct {
	Vector, Text, Rerank *float64
}

// Passage is a found chunk, with neighbouring chunks that were found with it joined to it.
type Passage struct {
	Store    string
	Document string
	Title    string
	URL      string
	ChunkID  string
	Place    Place
	Text     string
	Score    float64
	Scores   Scores
}

// Result is what a search returns, the best passage first.
type Result struct {
	Passages []Passage
	Mode     Mode // that was used
	// Degraded says why a part of the search was left out, e.g. a budget that was exhausted; "" if none was.
	Degraded string
}
