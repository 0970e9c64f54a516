// Package memory is what agents recall of earlier conversations. What a user said and was answered is kept in a
// [Store], one row each, for that user of that app alone; a [Finder] finds what matters to a question, by its words
// ([KeywordFinder]) or by its meaning ([VectorFinder]); [Recall] puts what it finds before a model and offers it as a tool.
//
// The rows are the truth. Vectors are made of them when they are first needed, and an index that is lost, or that
// another process has, is made of the rows again.
package memory

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// Memory is something that was said: by the user, or by an agent in answer.
type Memory struct {
	ID      string
	Owner   agentsvc.Owner
	Agent   string
	Context agentsvc.ContextID
	Task    agentsvc.TaskID
	Role    agentsvc.Role
	Text    string
	At      time.Time
}

// Bounds of what is kept.
const (
	// MaxMemories is how many memories of one user are kept, the latest.
	MaxMemories = 2000
	// maxText bounds the bytes of one memory; the rest is cut off.
	maxText = 8 << 10
)

// Store keeps one tenant's memories.
type Store struct {
	h      *db.Handle
	tenant string
}

// New returns the store of a tenant.
func New(d *db.DB, tenant db.ID) *Store {
	return &Store{h: d.Tenant(tenant), tenant: string(tenant)}
}

// AddMemories keeps what was said, and forgets the oldest of what an owner has too many of.
func (s *Store) AddMemories(ctx context.Context, messages ...Memory) error {
	b := db.Batch{StorageKind: db.StoresMore}
	owners := map[agentsvc.Owner]bool{}
	for _, m := range messages {
		text := normalizeText(m.Text)
		if text == "" {
			continue
		}
		owners[m.Owner] = true
		b.Exec(nil, `INSERT INTO memory (tenant, id, owner_iss, owner_sub, agent, context_id, task, role, text, words, at, model)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, stoa_now(), '')`,
			s.tenant, agentsvc.NewID(), m.Owner.Issuer, m.Owner.Subject, m.Agent, string(m.Context), string(m.Task), string(m.Role),
			text, strings.Join(extractWords(text), " "))
	}
	for o := range owners {
		b.Exec(nil, `DELETE FROM memory WHERE tenant = $1 AND id IN (SELECT id FROM memory
			WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 ORDER BY id DESC LIMIT 100 OFFSET $4)`,
			s.tenant, o.Subject, o.Issuer, MaxMemories)
	}
	if len(owners) == 0 {
		return nil
	}
	if err := s.h.Write(ctx, &b); err != nil {
		return fmt.Errorf("keep memories: %w", err)
	}
	return nil
}

// normalizeText is text as it is kept: trimmed, cut to maxText, UTF-8 without NUL.
func normalizeText(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", ""))
}

// Filter says which memories are meant: those of users with the subject, of the issuer unless it is nil, and unless
// Agents is nil of conversations with these agents.
type Filter struct {
	Subject string
	Issuer  *string
	Agents  []string
}

// sqlCondition is the condition that w is, with its arguments from $2 on.
func (w Filter) sqlCondition() (condition string, args []any) {
	condition = `owner_sub = $2`
	args = []any{w.Subject}
	if w.Issuer != nil {
		args = append(args, *w.Issuer)
		condition += ` AND owner_iss = $3`
	}
	if w.Agents == nil {
		return condition, args
	}
	var list []string
	for _, a := range w.Agents {
		args = append(args, a)
		list = append(list, fmt.Sprintf("$%d", len(args)+1))
	}
	if len(list) == 0 {
		return condition + ` AND 1 = 0`, args
	}
	return condition + ` AND agent IN (` + strings.Join(list, ", ") + `)`, args
}

const memoryColumns = `id, owner_iss, owner_sub, agent, context_id, task, role, text, at`

func scanMemory(r db.Row, more ...any) (Memory, error) {
	var m Memory
	var at int64
	err := r.Scan(append([]any{
		&m.ID, &m.Owner.Issuer, &m.Owner.Subject, &m.Agent, (*string)(&m.Context), (*string)(&m.Task), (*string)(&m.Role), &m.Text, &at,
	}, more...)...)
	m.At = time.UnixMicro(at).UTC()
	return m, err
}

// ListMemories returns up to size memories, the latest first, of those before the id before, or from the latest where it is
// empty. More says that there are others behind them.
func (s *Store) ListMemories(ctx context.Context, w Filter, size int, before string) (found []Memory, more bool, err error) {
	condition, args := w.sqlCondition()
	n := len(args) + 2
	var b db.Batch
	b.Query(func(r db.Row) error {
		m, err := scanMemory(r)
		found = append(found, m)
		return err
	}, fmt.Sprintf(`SELECT `+memoryColumns+` FROM memory WHERE tenant = $1 AND `+condition+` AND (CAST($%d AS TEXT) = '' OR id < $%d) ORDER BY id DESC LIMIT $%d`, n, n, n+1),
		append(append([]any{s.tenant}, args...), before, size+1)...)
	if err := s.h.Do(ctx, &b); err != nil {
		return nil, false, fmt.Errorf("list memories: %w", err)
	}
	if len(found) > size {
		return found[:size], true, nil
	}
	return found, false, nil
}

// EraseMemories removes memories for good and returns how many there were.
func (s *Store) EraseMemories(ctx context.Context, w Filter) (n int64, err error) {
	n, _, err = s.eraseWithOwners(ctx, w)
	return n, err
}

// eraseWithOwners tells as well whose they were.
func (s *Store) eraseWithOwners(ctx context.Context, w Filter) (n int64, owners []agentsvc.Owner, err error) {
	condition, args := w.sqlCondition()
	args = append([]any{s.tenant}, args...)
	var b db.Batch
	b.Query(func(r db.Row) error {
		var o agentsvc.Owner
		err := r.Scan(&o.Issuer, &o.Subject)
		owners = append(owners, o)
		return err
	}, `SELECT DISTINCT owner_iss, owner_sub FROM memory WHERE tenant = $1 AND `+condition, args...)
	b.Exec(&n, `DELETE FROM memory WHERE tenant = $1 AND `+condition, args...)
	if err := s.h.Do(ctx, &b); err != nil {
		return 0, nil, fmt.Errorf("erase memories: %w", err)
	}
	return n, owners, nil
}
