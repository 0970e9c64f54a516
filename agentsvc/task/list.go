package task

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/agentsvc/store"
)

// The sizes of a page.
const (
	DefaultPageSize = 50
	MaxPageSize     = 100
)

// Query chooses tasks and a page of them. Size 0 is [DefaultPageSize]; Token is the Next of the page before.
type Query struct {
	Context agentsvc.ContextID
	State   agentsvc.State
	After   time.Time // of their status; zero = any
	Size    int
	Token   string
	Parts   store.TaskParts
}

// Page is a page of tasks, newest first, which ends before its size where the tasks are large. Next is "" on the last one. It may be another caller's as well, and is not to be
// changed.
type Page struct {
	Tasks             []agentsvc.Task
	TaskEncodedCaches []*store.EncodedCache // of the tasks, nil where the query asks for history, artifacts or approvals
	EncodedCache      *store.EncodedCache   // of the page, nil where those of the tasks are
	Next              string
	Total             int
}

// List returns a page of the tasks within reach. It returns an [agentsvc.InvalidError] for a page token that is not
// from this query.
func (s *Service) List(ctx context.Context, visibility Visibility, q Query) (Page, error) {
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
	page, err := s.pageReads.readShared(ctx, pageReadKey{q, visibility.cacheKey()}, func(ctx context.Context) (Page, error) { return s.listPage(ctx, visibility, q) })
	if err != nil {
		return Page{}, err
	}
	var bytes int64
	for _, t := range page.Tasks {
		bytes += t.ByteSize()
	}
	// It may have been read for somebody else, and what is made of it is the caller's own.
	return page, capacity.ReservationFrom(ctx).ReserveTotal(ctx, bytes)
}

// pageReadKey is a page as callers ask for it: what tells it from every other.
type pageReadKey struct {
	Query
	visibility string
}

func (r Visibility) cacheKey() string {
	b := strconv.AppendBool(make([]byte, 0, 64), r.Agents == nil)
	for _, name := range r.Agents {
		b = strconv.AppendQuote(b, name)
	}
	if r.Owner != nil {
		b = strconv.AppendQuote(strconv.AppendQuote(append(b, ' '), r.Owner.Issuer), r.Owner.Subject)
	}
	return string(b)
}

func (s *Service) listPage(ctx context.Context, visibility Visibility, q Query) (Page, error) {
	before, err := s.decodePageToken(visibility, q)
	if err != nil {
		return Page{}, err
	}
	listed, err := s.store.ListTasks(ctx, store.TaskFilter{
		Agents: visibility.Agents, Owner: visibility.Owner, Context: q.Context, State: q.State, After: q.After, Before: before, Limit: q.Size + 1, Parts: q.Parts,
	})
	if err != nil {
		return Page{}, err
	}
	found := listed.Tasks
	p := Page{Total: listed.Total, Tasks: make([]agentsvc.Task, 0, len(found)), TaskEncodedCaches: make([]*store.EncodedCache, 0, len(found))}
	if listed.HasMore || len(found) > q.Size {
		found = found[:min(len(found), q.Size)]
		p.Next = s.encodePageToken(visibility, q, found[len(found)-1].ID)
	}
	if q.Parts == (store.TaskParts{}) {
		p.EncodedCache = new(store.EncodedCache)
	}
	for _, t := range found {
		p.Tasks, p.TaskEncodedCaches = append(p.Tasks, t.Task), append(p.TaskEncodedCaches, t.EncodedCache)
	}
	return p, nil
}

// encodePageToken names the place after id in this query and in no other.
func (s *Service) encodePageToken(visibility Visibility, q Query, id agentsvc.TaskID) string {
	return base64.RawURLEncoding.EncodeToString([]byte(s.digestQuery(visibility, q, id) + string(id)))
}

func (s *Service) decodePageToken(visibility Visibility, q Query) (agentsvc.TaskID, error) {
	if q.Token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Token)
	if err == nil && len(raw) > digestSize && strings.HasPrefix(string(raw), s.digestQuery(visibility, q, agentsvc.TaskID(raw[digestSize:]))) {
		return agentsvc.TaskID(raw[digestSize:]), nil
	}
	return "", agentsvc.NewInvalidError("page_token", "is not a token of this query; begin again without it")
}

const digestSize = 12

func (s *Service) digestQuery(visibility Visibility, q Query, id agentsvc.TaskID) string {
	owner := agentsvc.Owner{}
	if visibility.Owner != nil {
		owner = *visibility.Owner
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %d %q", s.tenant, visibility.Agents, owner, q.Context, q.State, q.After.UnixMicro(), id))
	return string(sum[:digestSize])
}
