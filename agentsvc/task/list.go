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
	DefaultPage = 50
	MaxPage     = 100
)

// Query chooses tasks and a page of them. Size 0 is [DefaultPage]; Token is the Next of the page before.
type Query struct {
	Context agentsvc.ContextID
	State   agentsvc.State
	After   time.Time // of their status; zero = any
	Size    int
	Token   string
	With    store.With
}

// Page is a page of tasks, newest first, which ends before its size where the tasks are large. Next is "" on the last one. It may be another caller's as well, and is not to be
// changed.
type Page struct {
	Tasks []agentsvc.Task
	Memos []*store.Memo // of the tasks, nil where the query asks for history, artifacts or approvals
	Memo  *store.Memo   // of the page, nil where those of the tasks are
	Next  string
	Total int
}

// List returns a page of the tasks within reach. It returns an [agentsvc.InvalidError] for a page token that is not
// from this query.
func (s *Service) List(ctx context.Context, reach Reach, q Query) (Page, error) {
	if q.Size == 0 {
		q.Size = DefaultPage
	}
	if q.Size < 1 || q.Size > MaxPage {
		return Page{}, agentsvc.Invalid("page_size", "must be between 1 and %d", MaxPage)
	}
	if q.State != "" && !q.State.Valid() {
		return Page{}, agentsvc.Invalid("status", "unknown state %q", q.State)
	}
	if err := checkID("context_id", string(q.Context)); err != nil {
		return Page{}, err
	}
	page, err := s.pages.do(ctx, asked{q, reach.key()}, func(ctx context.Context) (Page, error) { return s.list(ctx, reach, q) })
	if err != nil {
		return Page{}, err
	}
	var bytes int64
	for _, t := range page.Tasks {
		bytes += t.Bytes()
	}
	// It may have been read for somebody else, and what is made of it is the caller's own.
	return page, capacity.Of(ctx).Reach(ctx, bytes)
}

// asked is a page as callers ask for it: what tells it from every other.
type asked struct {
	Query
	reach string
}

func (r Reach) key() string {
	b := strconv.AppendBool(make([]byte, 0, 64), r.Agents == nil)
	for _, name := range r.Agents {
		b = strconv.AppendQuote(b, name)
	}
	if r.Owner != nil {
		b = strconv.AppendQuote(strconv.AppendQuote(append(b, ' '), r.Owner.Issuer), r.Owner.Subject)
	}
	return string(b)
}

func (s *Service) list(ctx context.Context, reach Reach, q Query) (Page, error) {
	before, err := s.position(reach, q)
	if err != nil {
		return Page{}, err
	}
	listed, err := s.store.Tasks(ctx, store.Filter{
		Agents: reach.Agents, Owner: reach.Owner, Context: q.Context, State: q.State, After: q.After, Before: before, Limit: q.Size + 1, With: q.With,
	})
	if err != nil {
		return Page{}, err
	}
	found := listed.Tasks
	p := Page{Total: listed.Total, Tasks: make([]agentsvc.Task, 0, len(found)), Memos: make([]*store.Memo, 0, len(found))}
	if listed.More || len(found) > q.Size {
		found = found[:min(len(found), q.Size)]
		p.Next = s.token(reach, q, found[len(found)-1].ID)
	}
	if q.With == (store.With{}) {
		p.Memo = new(store.Memo)
	}
	for _, t := range found {
		p.Tasks, p.Memos = append(p.Tasks, t.Task), append(p.Memos, t.Memo)
	}
	return p, nil
}

// token names the place after id in this query and in no other.
func (s *Service) token(reach Reach, q Query, id agentsvc.TaskID) string {
	return base64.RawURLEncoding.EncodeToString([]byte(s.digest(reach, q, id) + string(id)))
}

func (s *Service) position(reach Reach, q Query) (agentsvc.TaskID, error) {
	if q.Token == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Token)
	if err == nil && len(raw) > digestSize && strings.HasPrefix(string(raw), s.digest(reach, q, agentsvc.TaskID(raw[digestSize:]))) {
		return agentsvc.TaskID(raw[digestSize:]), nil
	}
	return "", agentsvc.Invalid("page_token", "is not a token of this query; begin again without it")
}

const digestSize = 12

func (s *Service) digest(reach Reach, q Query, id agentsvc.TaskID) string {
	owner := agentsvc.Owner{}
	if reach.Owner != nil {
		owner = *reach.Owner
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %d %q", s.tenant, reach.Agents, owner, q.Context, q.State, q.After.UnixMicro(), id))
	return string(sum[:digestSize])
}
