// Package memory stores the messages and answers of earlier conversations with a user, and finds them again for
// the agents. A [Store] has one row for each text, which only that user of that app can reach. A [Finder] finds the
// rows that matter to a question, by words ([KeywordFinder]) or by meaning ([VectorFinder]). [Recall] adds what it
// finds to the system prompt, offers the search as a tool, and stores turns that have ended.
//
// The rows are the source of truth. Vectors are computed when they are first needed and stored with the row. An index
// of vectors can be rebuilt from the rows, after it was lost or in another process.
//
// docs/memory.md describes the settings.
package memory

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/words"
	"stoa/tenancy/db"
)

// Memory is one text of an earlier conversation: a user's message, or an agent's answer.
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

// Bounds of what is stored.
const (
	// MaxMemories is how many memories a user has at most; older ones are deleted.
	MaxMemories = 2000
	// maxText bounds the bytes of one memory. Longer texts are cut.
	maxText = 8 << 10
)

// Store has one tenant's memories. Its database handle reaches that tenant's rows only.
type Store struct {
	// h reaches the tenant's rows only; the statements name the tenant as well, which SQLite needs.
	h      *db.Handle
	tenant string
}

// New returns the store of a tenant.
func New(d *db.DB, tenant db.ID) *Store {
	return &Store{h: d.Tenant(tenant), tenant: string(tenant)}
}

// AddMemories stores texts, and deletes the oldest ones of an owner beyond MaxMemories, at most 100 at a time. Blank
// texts are skipped. The database's quota may refuse the write.
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
			text, strings.Join(words.Extract(text), " "))
	}
	for o := range owners {
		// Ids ascend with time, so the order by id is that of age.
		b.Exec(nil, `DELETE FROM memory WHERE tenant = $1 AND id IN (SELECT id FROM memory
			WHERE tenant = $1 AND owner_sub = $2 AND owner_iss = $3 ORDER BY id DESC LIMIT 100 OFFSET $4)`,
			s.tenant, o.Subject, o.Issuer, MaxMemories)
	}
	if len(owners) == 0 {
		return nil
	}
	if err := s.h.Write(ctx, &b); err != nil {
		return fmt.Errorf("store memories: %w", err)
	}
	return nil
}

// normalizeText returns text as it is stored: trimmed, at most maxText bytes, valid UTF-8 without NUL, which PostgreSQL
// does not accept.
func normalizeText(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", ""))
}

// Filter selects memories of users with a subject. A nil Issuer matches every issuer, nil Agents every agent; an empty
// Agents matches none.
type Filter struct {
	Subject string
	Issuer  *string
	Agents  []string
}

// sqlCondition returns the SQL condition of w, and its arguments, which begin at $2. Only placeholders are formatted
// into the text.
func (f Filter) sqlCondition() (condition string, args []any) {
	condition = `owner_sub = $2`
	args = []any{f.Subject}
	if f.Issuer != nil {
		args = append(args, *f.Issuer)
		condition += ` AND owner_iss = $3`
	}
	if f.Agents == nil {
		return condition, args
	}
	var list []string
	for _, a := range f.Agents {
		args = append(args, a)
		list = append(list, fmt.Sprintf("$%d", len(args)+1))
	}
	if len(list) == 0 {
		return condition + ` AND 1 = 0`, args
	}
	return condition + ` AND agent IN (` + strings.Join(list, ", ") + `)`, args
}

const memoryColumns = `id, owner_iss, owner_sub, agent, context_id, task, role, text, at`

// scanMemory reads a row of memoryColumns, followed by the columns of more.
func scanMemory(r db.Row, more ...any) (Memory, error) {
	var m Memory
	var at int64
	err := r.Scan(append([]any{
		&m.ID, &m.Owner.Issuer, &m.Owner.Subject, &m.Agent, (*string)(&m.Context), (*string)(&m.Task), (*string)(&m.Role), &m.Text, &at,
	}, more...)...)
	m.At = time.UnixMicro(at).UTC()
	return m, err
}

// ListMemories returns at most size memories with an id below before, latest first; "" means from the latest. more
// reports whether there are further ones.
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

// EraseMemories deletes memories. It returns how many there were, and in the same transaction whose they were, so that
// the owners' indexes can be dropped.
func (s *Store) EraseMemories(ctx context.Context, w Filter) (n int64, owners []agentsvc.Owner, err error) {
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
