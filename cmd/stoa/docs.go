package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"stoa/authz"
)

// docsCmd is `stoa docs`: the document stores of an app.
type docsCmd struct {
	Put    docsPutCmd    `cmd:"" help:"Upload files and folders."`
	Status docsStatusCmd `cmd:"" help:"Show a store, and which of its documents failed."`
	List   docsListCmd   `cmd:"" help:"List the documents of a store."`
	Search docsSearchCmd `cmd:"" help:"Search a store."`
	Delete docsDeleteCmd `cmd:"" help:"Delete documents: no later answer contains them."`
	Eval   docsEvalCmd   `cmd:"" help:"Measure how well a store finds the documents that answer given questions."`
}

// storeFlags are the arguments of the commands about one document store.
type storeFlags struct {
	tenantFlags `embed:""`
	Store       string `arg:"" help:"The document store."`
}

// storePath returns the path of the store, with suffix.
func (f storeFlags) storePath(suffix string) string {
	return f.appPath("/v1/document-stores/" + url.PathEscape(f.Store) + suffix)
}

// documentPath returns the path of a document of the store.
func (f storeFlags) documentPath(id string) string {
	return f.storePath("/documents/" + url.PathEscape(id))
}

// storeRecord is a document store in the JSON of the API.
type storeRecord struct {
	Name           string `json:"name"`
	Source         string `json:"source"`
	State          string `json:"state"`
	Error          string `json:"error"`
	Documents      int64  `json:"documents"`
	Chunks         *int64 `json:"chunks"`
	Pending        int64  `json:"pending"`
	Failed         int64  `json:"failed"`
	Generation     int64  `json:"generation"`
	Embedder       string `json:"embedder"`
	VectorIndex    string `json:"vectorIndex"`
	EmbeddedTokens *int64 `json:"embeddedTokens"`
	OldestPending  string `json:"oldestPending"`
	UpdatedAt      string `json:"updatedAt"`
}

// documentRecord is a document in the JSON of the API.
type documentRecord struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	MediaType string `json:"mediaType"`
	Bytes     int64  `json:"bytes"`
	State     string `json:"state"`
	Error     string `json:"error"`
	Chunks    int    `json:"chunks"`
	UpdatedAt string `json:"updatedAt"`
	// Outcome is what an upload did; other answers have none.
	Outcome string `json:"outcome"`
}

// documentPage is a page of documents in the JSON of the API.
type documentPage struct {
	Documents []documentRecord `json:"documents"`
	Next      string           `json:"nextPageToken"`
	Total     int64            `json:"totalSize"`
}

// readStore returns the state of the store.
func (f storeFlags) readStore(ctx context.Context, api *client) (storeRecord, error) {
	var list struct {
		Stores []storeRecord `json:"documentStores"`
	}
	if err := api.doJSON(ctx, http.MethodGet, f.appPath("/v1/document-stores"), nil, &list); err != nil {
		return storeRecord{}, err
	}
	names := make([]string, len(list.Stores))
	for i, s := range list.Stores {
		if names[i] = s.Name; s.Name == f.Store {
			return s, nil
		}
	}
	if len(names) == 0 {
		return storeRecord{}, fmt.Errorf("the app has no document store %q: it has none at all (document_stores in its configuration)", f.Store)
	}
	return storeRecord{}, fmt.Errorf("the app has no document store %q; it has %s", f.Store, strings.Join(names, ", "))
}

// readPage returns a page of the store's documents.
func (f storeFlags) readPage(ctx context.Context, api *client, query url.Values) (page documentPage, err error) {
	err = api.doJSON(ctx, http.MethodGet, strings.TrimSuffix(f.storePath("/documents")+"?"+query.Encode(), "?"), nil, &page)
	return page, err
}

// deleteDocument deletes a document of the store.
func (f storeFlags) deleteDocument(ctx context.Context, api *client, id string) error {
	return api.doJSON(ctx, http.MethodDelete, f.documentPath(id), nil, nil)
}

// docsStatusCmd is `stoa docs status`.
type docsStatusCmd struct {
	storeFlags `embed:""`
	JSON       bool `name:"json" help:"Print the store in the JSON of the API."`
}

// maxShownFailures bounds the failed documents that status shows.
const maxShownFailures = 20

// Run prints the state of the store and the documents that failed.
func (cmd *docsStatusCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient(authz.DocumentsRead)
	if err != nil {
		return err
	}
	s, err := cmd.readStore(ctx, api)
	if err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(s)
	}
	shown := [][]string{
		{"source", s.Source}, {"state", s.State}, {"error", s.Error}, {"documents", strconv.FormatInt(s.Documents, 10)}, {"chunks", formatCount(s.Chunks)},
		{"pending", strconv.FormatInt(s.Pending, 10)}, {"failed", strconv.FormatInt(s.Failed, 10)}, {"generation", strconv.FormatInt(s.Generation, 10)},
		{"embedder", s.Embedder}, {"vector index", s.VectorIndex}, {"tokens", formatCount(s.EmbeddedTokens)}, {"oldest pending", s.OldestPending}, {"updated", s.UpdatedAt},
	}
	shown = slices.DeleteFunc(shown, func(row []string) bool { return row[1] == "" })
	if err := c.printTable([]string{"store", s.Name}, shown); err != nil || s.Failed == 0 {
		return err
	}
	page, err := cmd.readPage(ctx, api, url.Values{"state": {"failed"}, "page_size": {strconv.Itoa(maxShownFailures)}})
	if err != nil {
		return err
	}
	for _, d := range page.Documents {
		c.printStatus("failed: %s: %s", d.ID, d.Error)
	}
	if more := page.Total - int64(len(page.Documents)); more > 0 {
		c.printStatus("and %d more: stoa docs list %s --state failed%s", more, quoteWord(cmd.Store), cmd.formatFlags())
	}
	return nil
}

// formatCount returns a count, "" if the caller may not see it.
func formatCount(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// docsListCmd is `stoa docs list`.
type docsListCmd struct {
	storeFlags `embed:""`
	State      string `placeholder:"STATE" help:"Only in this state: pending, indexed, failed or deleting."`
	Prefix     string `placeholder:"TEXT" help:"Only with ids that begin with this."`
	Limit      int    `placeholder:"N" help:"At most so many documents, up to 1000 (100)."`
	Cursor     string `placeholder:"TOKEN" help:"Continue a list after the page that ended with this token."`
	JSON       bool   `name:"json" help:"Print the API's answer as JSON."`
}

// Run prints one page of documents, and how to get the next one.
func (cmd *docsListCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient(authz.DocumentsRead)
	if err != nil {
		return err
	}
	query := url.Values{}
	for name, value := range map[string]string{"state": cmd.State, "prefix": cmd.Prefix, "page_token": cmd.Cursor, "page_size": strconv.Itoa(cmd.Limit)} {
		if value != "" && value != "0" {
			query.Set(name, value)
		}
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodGet, strings.TrimSuffix(cmd.storePath("/documents")+"?"+query.Encode(), "?"), nil, &answer); err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	var page documentPage
	if err := json.Unmarshal(answer, &page); err != nil {
		return fmt.Errorf("read the list of documents: %w", err)
	}
	rows := make([][]string, len(page.Documents))
	for i, d := range page.Documents {
		rows[i] = []string{d.ID, d.State, strconv.Itoa(d.Chunks), strconv.FormatInt(d.Bytes, 10), d.UpdatedAt, d.Title, d.Error}
	}
	if err := c.printTable([]string{"DOCUMENT", "STATE", "CHUNKS", "BYTES", "UPDATED", "TITLE", "ERROR"}, rows); err != nil {
		return err
	}
	if page.Next != "" {
		c.printStatus("%d of %d; more with --cursor %s", len(page.Documents), page.Total, page.Next)
	}
	return nil
}

// docsSearchCmd is `stoa docs search`.
type docsSearchCmd struct {
	storeFlags `embed:""`
	Query      string            `arg:"" help:"A question, or words."`
	Limit      int               `placeholder:"N" help:"At most so many passages, up to 100; without it, as many as the store's top_k."`
	Mode       string            `enum:",hybrid,vector,text" default:"" placeholder:"MODE" help:"hybrid, vector or text; without it, the best that the store has."`
	Filter     map[string]string `placeholder:"NAME=VALUE" help:"Only documents with this metadata; may be repeated."`
	JSON       bool              `name:"json" help:"Print the API's answer as JSON."`
}

// passage is a found passage in the JSON of the API.
type passage struct {
	Document string  `json:"document"`
	Title    string  `json:"title"`
	Text     string  `json:"text"`
	Score    float64 `json:"score"`
	Scores   struct {
		Vector *float64 `json:"vector"`
		Text   *float64 `json:"text"`
		Rerank *float64 `json:"rerank"`
	} `json:"scores"`
	Page    int    `json:"page"`
	Heading string `json:"heading"`
	Sheet   string `json:"sheet"`
	Line    int    `json:"line"`
	URL     string `json:"url"`
}

// describe returns the document, the passage's place in it, and its address.
func (p passage) describe() string {
	words := []string{p.Document}
	if p.Page > 0 {
		words = append(words, fmt.Sprintf("p. %d", p.Page))
	}
	if p.Sheet != "" {
		words = append(words, "sheet "+p.Sheet)
	}
	if p.Heading != "" {
		words = append(words, `"`+p.Heading+`"`)
	}
	if p.Line > 0 && p.Heading == "" {
		words = append(words, fmt.Sprintf("line %d", p.Line))
	}
	out := strings.Join(words, ", ")
	if p.URL != "" {
		out += " <" + p.URL + ">"
	}
	return out
}

// describeScores returns the score, and those of its parts.
func (p passage) describeScores() string {
	var parts []string
	for _, part := range []struct {
		name  string
		score *float64
	}{{"vector", p.Scores.Vector}, {"text", p.Scores.Text}, {"rerank", p.Scores.Rerank}} {
		if part.score != nil {
			parts = append(parts, fmt.Sprintf("%s %.3g", part.name, *part.score))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("%.3g", p.Score)
	}
	return fmt.Sprintf("%.3g: %s", p.Score, strings.Join(parts, ", "))
}

// maxShownPassage bounds the text of a passage that search shows, in characters; --json has all of it.
const maxShownPassage = 400

// Run prints the passages, the best first.
func (cmd *docsSearchCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient(authz.DocumentsRead)
	if err != nil {
		return err
	}
	body := map[string]any{"query": cmd.Query}
	if cmd.Limit != 0 {
		body["limit"] = cmd.Limit
	}
	if cmd.Mode != "" {
		body["mode"] = cmd.Mode
	}
	if len(cmd.Filter) > 0 {
		body["filter"] = cmd.Filter
	}
	var answer json.RawMessage
	if err := api.doJSON(ctx, http.MethodPost, cmd.storePath(":search"), body, &answer); err != nil {
		return err
	}
	if cmd.JSON {
		return c.printJSON(answer)
	}
	var found struct {
		Results        []passage
		Mode, Degraded string
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return fmt.Errorf("read the passages: %w", err)
	}
	for i, p := range found.Results {
		text := []rune(strings.Join(strings.Fields(p.Text), " "))
		if len(text) > maxShownPassage {
			text = append(text[:maxShownPassage], '…')
		}
		fmt.Fprintln(c.out, stripControls(fmt.Sprintf("%d  %s  (%s)\n   %s", i+1, p.describe(), p.describeScores(), string(text))))
	}
	if found.Degraded != "" {
		c.printStatus("a part of the search was left out: %s", found.Degraded)
	}
	c.printDimmed("%d passages, searched by %s", len(found.Results), found.Mode)
	return nil
}

// docsDeleteCmd is `stoa docs delete`.
type docsDeleteCmd struct {
	storeFlags  `embed:""`
	confirmFlag `embed:""`
	IDs         []string `arg:"" name:"id" help:"The documents."`
}

// Run deletes the documents after the human at the terminal has confirmed it.
func (cmd *docsDeleteCmd) Run(ctx context.Context, c *console) error {
	api, err := cmd.newTenantClient(authz.DocumentsRead)
	if err != nil {
		return err
	}
	if err := cmd.confirmYes(ctx, c, fmt.Sprintf("delete %d of %s: %s", len(cmd.IDs), cmd.Store, strings.Join(cmd.IDs, ", "))); err != nil {
		return err
	}
	for _, id := range cmd.IDs {
		if err := cmd.deleteDocument(ctx, api, id); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		c.printStatus("deleted %s", id)
	}
	return nil
}
