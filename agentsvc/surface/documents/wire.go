package documents

import (
	"stoa/agentsvc/document"
	"stoa/agentsvc/surface/encode"
)

// storeBody is the state of a document store. What is nil is not shown to the caller.
type storeBody struct {
	Name   string `json:"name"`
	Source string `json:"source"`
	// State is ready, indexing or failed.
	State string `json:"state"`
	// Error is why the source cannot be read.
	Error     string `json:"error,omitempty"`
	Documents int64  `json:"documents"`
	Chunks    *int64 `json:"chunks,omitempty"`
	Pending   int64  `json:"pending"`
	Failed    int64  `json:"failed"`
	// Generation counts the rebuilds of the index.
	Generation int64 `json:"generation"`
	// Embedder is the model of the vectors, "" = the store is searched by words only.
	Embedder string `json:"embedder"`
	// VectorIndex is exact or hnsw, "" = the platform's database has no vectors of the store.
	VectorIndex string `json:"vectorIndex,omitempty"`
	// EmbeddedTokens is what embedding has used, of all generations.
	EmbeddedTokens *int64 `json:"embeddedTokens,omitempty"`
	// OldestPending is when the document that waits longest was received.
	OldestPending *string `json:"oldestPending,omitempty"`
	UpdatedAt     *string `json:"updatedAt,omitempty"`
}

func newStoreBody(s document.StoreStatus) storeBody {
	return storeBody{
		s.Name, s.Source, s.State, s.Error, s.Documents, &s.Chunks, s.Pending, s.Failed, s.Generation, s.Embedder, s.VectorIndex, &s.EmbeddedTokens,
		encode.FormatOptionalTime(s.OldestPending), encode.FormatOptionalTime(s.UpdatedAt),
	}
}

type storeList struct {
	DocumentStores []storeBody `json:"documentStores"`
}

// documentBody is a document's record.
type documentBody struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
	State     string `json:"state"`
	// Error is why the document could not be indexed.
	Error       string            `json:"error,omitempty"`
	Chunks      int               `json:"chunks"`
	ContentHash string            `json:"contentHash"`
	URL         string            `json:"url,omitempty"`
	Metadata    map[string]string `json:"metadata"`
	// Access is nil for callers without documents:write: it names others who may read the document.
	Access    *document.Access `json:"access,omitempty"`
	UpdatedAt *string          `json:"updatedAt"`
}

// newDocumentBody returns a document's record as reader may see it.
func newDocumentBody(d document.Document, reader document.Reader) documentBody {
	b := documentBody{
		ID: d.ID, Title: d.Title, MediaType: d.MediaType, Bytes: d.Bytes, State: string(d.State), Error: d.Error, Chunks: d.Chunks,
		ContentHash: d.ContentHash, URL: d.URL, Metadata: d.Metadata, UpdatedAt: encode.FormatOptionalTime(d.UpdatedAt),
	}
	if b.Metadata == nil {
		b.Metadata = map[string]string{}
	}
	if reader.All {
		b.Access = &d.Access
	}
	return b
}

// storedDocument is the answer to an upload.
type storedDocument struct {
	documentBody
	// Outcome is created, changed, updated (metadata or access alone) or unchanged.
	Outcome string `json:"outcome"`
}

// listEnd is what follows the documents of a page.
type listEnd struct {
	NextPageToken string `json:"nextPageToken"`
	TotalSize     int64  `json:"totalSize"`
}

// searchBody is a search. Limit nil is the store's own, Mode "" the best that the store has.
type searchBody struct {
	Query string `json:"query"`
	Limit *int   `json:"limit"`
	Mode  string `json:"mode"`
	// Filter has metadata that the documents must have.
	Filter map[string]string `json:"filter"`
}

// searchResult is the passages of a search, the best first.
type searchResult struct {
	Results []passageBody `json:"results"`
	Mode    string        `json:"mode"`
	// Degraded is why a part of the search was left out.
	Degraded string `json:"degraded,omitempty"`
}

// passageBody is a passage of a document.
type passageBody struct {
	Document string     `json:"document"`
	Title    string     `json:"title"`
	Chunk    string     `json:"chunk"`
	Text     string     `json:"text"`
	Score    float64    `json:"score"`
	Scores   scoresBody `json:"scores"`
	Page     int        `json:"page,omitempty"`
	Heading  string     `json:"heading,omitempty"`
	Sheet    string     `json:"sheet,omitempty"`
	Line     int        `json:"line,omitempty"`
	URL      string     `json:"url,omitempty"`
}

// scoresBody has the score of each part of the search that found the passage.
type scoresBody struct {
	Vector *float64 `json:"vector,omitempty"`
	Text   *float64 `json:"text,omitempty"`
	Rerank *float64 `json:"rerank,omitempty"`
}

func newPassageBody(p document.Passage) passageBody {
	return passageBody{
		p.Document, p.Title, p.ChunkID, p.Text, p.Score, scoresBody(p.Scores), p.Place.Page, p.Place.Heading, p.Place.Sheet, p.Place.Line, p.URL,
	}
}
