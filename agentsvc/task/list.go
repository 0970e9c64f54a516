package task

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
)

// Page sizes, in tasks.
const (
	DefaultPageSize = 50
	MaxPageSize     = 100
)

// maxSearchText bounds [Query].Text, in bytes.
const maxSearchText = 200

// Query selects tasks and a page of them. Size 0 is [DefaultPageSize]; Token is [Page].Next of the previous page.
type Query struct {
	Context agentsvc.ContextID
	State   agentsvc.State
	After   time.Time // lower bound of the status time; zero = any
	// Since and Until, exclusive, bound the time at which the task was opened; zero = any.
	Since, Until time.Time
	// Text is what the message that opened the task, or that of its present status, contains; "" = any. A page then has
	// those among some of the newest tasks, perhaps none, and the next page continues after them.
	Text  string
	Size  int
	Token string
	Parts store.TaskParts
}

// Page is a page of tasks, newest first. It may have fewer tasks than its size where the tasks are large. Next is ""
// on the last page. A page may be shared with other callers and must not be modified.
type Page struct {
	Tasks []agentsvc.Task
	// TaskEncodedCaches hold encoded forms of the tasks, in the same order; entries are nil where the query reads
	// history, artifacts or approvals. EncodedCache holds those of the whole page; nil in the same case.
	TaskEncodedCaches []*store.EncodedCache
	EncodedCache      *store.EncodedCache
	Next              string
	Total             int // on all pages
}

// List returns a page of the visible tasks. It returns an error with [agentsvc.CodeInvalid] for an invalid size, state or
// context, and for a page token of another query.
func (r *Reader) List(ctx context.Context, visibility Visibility, q Query) (Page, error) {
	if q.Size == 0 {
		q.Size = DefaultPageSize
	}
	if q.Size < 1 || q.Size > MaxPageSize {
		return Page{}, agentsvc.NewInvalidError("page_size", "must be between 1 and %d", MaxPageSize)
	}
	if q.State != "" && !q.State.IsValid() {
		return Page{}, agentsvc.NewInvalidError("status", "unknown state %q", q.State)
	}
	if err := checkID("context_id", string(q.Context)); err != nil {
		return Page{}, err
	}
	if len(q.Text) > maxSearchText || !utf8.ValidString(q.Text) || strings.ContainsRune(q.Text, 0) {
		return Page{}, agentsvc.NewInvalidError("text", "must be at most %d bytes of UTF-8, without NUL", maxSearchText)
	}
	page, err := r.pageReads.readShared(ctx, pageReadKey{q, visibility.cacheKey()}, func(ctx context.Context) (Page, error) { return r.listPage(ctx, visibility, q) })
	if err != nil {
		return Page{}, err
	}
	var bytes int64
	for _, t := range page.Tasks {
		bytes += t.ByteSize()
	}
	// The read's memory was reserved by the caller that performed it; each caller reserves its own for what it makes
	// of the page.
	return page, visibility.Memory.ReserveTotal(ctx, bytes)
}

// pageReadKey identifies page reads that can be shared: same query, same visibility.
type pageReadKey struct {
	Query
	visibility string
}

// cacheKey returns a text that is equal only for equal visibilities. Agent names are quoted, because tenants choose
// them.
func (v Visibility) cacheKey() string {
	b := strconv.AppendBool(make([]byte, 0, 64), v.Agents == nil)
	for _, name := range v.Agents {
		b = strconv.AppendQuote(b, name)
	}
	if v.Owner != nil {
		b = strconv.AppendQuote(strconv.AppendQuote(append(b, ' '), v.Owner.Issuer), v.Owner.Subject)
	}
	return string(b)
}

// listPage reads the page of q. It requests one task more than the size, which shows whether another page follows.
func (r *Reader) listPage(ctx context.Context, visibility Visibility, q Query) (Page, error) {
	before, err := decodePageToken(r.tenant, visibility, q)
	if err != nil {
		return Page{}, err
	}
	listed, err := r.tasks.List(ctx, visibility.Memory, store.TaskFilter{
		Agents: visibility.Agents, Owner: visibility.Owner, Context: q.Context, State: q.State, After: q.After, Since: q.Since, Until: q.Until, Text: q.Text, Before: before, Limit: q.Size + 1, Parts: q.Parts,
	})
	if err != nil {
		return Page{}, err
	}
	found := listed.Tasks
	p := Page{Total: listed.Total, Tasks: make([]agentsvc.Task, 0, len(found)), TaskEncodedCaches: make([]*store.EncodedCache, 0, len(found))}
	switch {
	case listed.HasMore || len(found) > q.Size:
		found = found[:min(len(found), q.Size)]
		p.Next = encodePageToken(r.tenant, visibility, q, found[len(found)-1].ID)
	case listed.Searched != "":
		p.Next = encodePageToken(r.tenant, visibility, q, listed.Searched)
	}
	if q.Parts == (store.TaskParts{}) {
		p.EncodedCache = new(store.EncodedCache)
	}
	for _, t := range found {
		p.Tasks, p.TaskEncodedCaches = append(p.Tasks, t.Task), append(p.TaskEncodedCaches, t.EncodedCache)
	}
	return p, nil
}

// encodePageToken returns the token of the page after task id. It begins with a digest of the query, so that a token
// cannot be used with another query; it is no secret and grants nothing, since the query's visibility is applied
// again.
func encodePageToken(tenant db.ID, visibility Visibility, q Query, id agentsvc.TaskID) string {
	return base64.RawURLEncoding.EncodeToString([]byte(digestQuery(tenant, visibility, q, id) + string(id)))
}

// decodePageToken returns the id of the last task of the previous page, "" without a token.
func decodePageToken(tenant db.ID, visibility Visibility, q Query) (agentsvc.TaskID, error) {
	if q.Token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Token)
	if err == nil && len(raw) > digestSize && strings.HasPrefix(string(raw), digestQuery(tenant, visibility, q, agentsvc.TaskID(raw[digestSize:]))) {
		return agentsvc.TaskID(raw[digestSize:]), nil
	}
	return "", agentsvc.NewInvalidError("page_token", "is not a token of this query; begin again without it")
}

// digestSize is the length of the query's digest in a page token, in bytes.
const digestSize = 12

// digestQuery returns the digest of everything that selects tasks, with the tenant and the position. Page size and
// parts may change between pages.
func digestQuery(tenant db.ID, visibility Visibility, q Query, id agentsvc.TaskID) string {
	owner := agentsvc.Owner{}
	if visibility.Owner != nil {
		owner = *visibility.Owner
	}
	text := fmt.Appendf(nil, "%q %q %q %q %q %d %q", tenant, visibility.Agents, owner, q.Context, q.State, q.After.UnixMicro(), id)
	// Without them a token is that of the versions before: servers of both share a database during an upgrade.
	if !q.Since.IsZero() || !q.Until.IsZero() || q.Text != "" {
		text = fmt.Appendf(text, " %d %d %q", q.Since.UnixMicro(), q.Until.UnixMicro(), q.Text)
	}
	sum := sha256.Sum256(text)
	return string(sum[:digestSize])
}
