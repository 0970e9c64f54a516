// Package audit is the audit trail: who did what to which app, and from where. [Insert] and [Queue] add an entry in the
// transaction of the change that it records. A [Trail] chains the entries by hashes, lists and exports them; a
// [Verifier] checks an export and an [Inspector] checks the trail in the database. See docs/api/admin.md.
package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/tenancy/db"
	"stoa/tenancy/keyring"
)

// Entry is one entry of the audit trail: who did what to which app, and from where. Detail must not contain
// secrets.
type Entry struct {
	ID    string
	At    time.Time
	Actor Actor
	// Action is the operation in dotted form, such as app.update.
	Action string
	// App is the app's name at the time of the entry.
	App    string
	AppID  db.ID
	Detail map[string]any

	// Seq is the entry's number in the chain of its app, from 1; 0 while it is not chained.
	Seq int64
	// Prev is the hash of the entry before it in the chain, Hash its own; see [Entry.ComputeHash].
	Prev string
	Hash string
}

// Insert adds an entry to the audit trail in the transaction of the change that it records. It sets ID and
// At, and looks App up by AppID if App is empty. The entry is
// chained a moment later by [Trail.Seal]: chaining here would make all changes of an app wait for the lock of
// its head.
//
// The platform's handle can write any entry, a tenant's handle only entries of its own app.
func Insert(ctx context.Context, tx *db.Tx, e Entry) error {
	args, err := e.insertArgs()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insertEntrySQL, args...)
	return err
}

// Queue adds the statement of [Insert] to b. It takes effect only if condition holds, an SQL
// expression of the calling package whose parameters args are numbered from $10.
func Queue(ctx context.Context, b *db.Batch, e Entry, condition string, args ...any) error {
	row, err := e.insertArgs()
	if err != nil {
		return err
	}
	b.Exec(nil, insertEntrySQL+` WHERE `+condition, append(row, args...)...)
	return nil
}

// insertEntrySQL inserts an entry. It is an INSERT ... SELECT, so that a condition can be appended; the casts give
// PostgreSQL the types that it cannot infer from a SELECT list. If the app has no row its id serves as the name.
const insertEntrySQL = `INSERT INTO audit (id, at, actor, issuer, action, app, app_id, client, request_id, detail)
	SELECT CAST($1 AS TEXT), stoa_now(), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),
		COALESCE(NULLIF(CAST($5 AS TEXT), ''), (SELECT name FROM app WHERE tenant = CAST($6 AS TEXT)), CAST($6 AS TEXT)),
		CAST($6 AS TEXT), CAST($7 AS TEXT), CAST($8 AS TEXT), CAST($9 AS TEXT)`

// insertArgs returns the parameters $1 to $9 of insertEntrySQL. Ids are UUIDs of version 7 (RFC 9562), which grow with
// time, so that entries of the same microsecond have an order.
func (e Entry) insertArgs() ([]any, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	detail, err := json.Marshal(e.Detail)
	if err != nil {
		return nil, fmt.Errorf("audit entry %s: %w", e.Action, err)
	}
	return []any{id.String(), e.Actor.Name, e.Actor.Issuer, e.Action, e.App, string(e.AppID), e.Actor.Client, e.Actor.Request, string(detail)}, nil
}

// Trail is the audit trail in the platform's database. It is safe for concurrent use, in any number of processes on one
// database.
type Trail struct {
	// db, keys and chains are set by New and read-only afterwards.
	db     *db.Handle
	keys   *keyring.Keyring
	chains *chains
}

// New returns the trail in the migrated database d, whose chains are sealed with keys. log receives the errors of
// background work; nil means [slog.Default].
func New(d *db.DB, keys *keyring.Keyring, log *slog.Logger) *Trail {
	if log == nil {
		log = slog.Default()
	}
	return &Trail{db: d.Platform(), keys: keys, chains: &chains{db: d.Platform(), keys: keys, log: log}}
}

// Run appends new entries to their chains until ctx ends, whose error it returns. It may run in any number of processes.
func (t *Trail) Run(ctx context.Context) error { return t.chains.runSealing(ctx) }

// Seal appends every committed entry to its chain. [Trail.Run] does so once a second.
func (t *Trail) Seal(ctx context.Context) error { return t.chains.sealAll(ctx) }

// Adopt makes the entries of an app that insert adds in tx, as another installation chained them, a chain of this one. It
// returns [agentsvc.CodeInvalid] if they are no complete chain. It locks the number of chains until tx ends.
func (t *Trail) Adopt(ctx context.Context, tx *db.Tx, app db.ID, insert func() error) error {
	return t.chains.adoptChain(ctx, tx, string(app), insert)
}

// Reseal seals with the current master key the heads of chains that were sealed with former ones, so that those can be
// removed.
func (t *Trail) Reseal(ctx context.Context) error { return t.chains.resealHeads(ctx) }

// Hasher returns the hasher of values in the operator's chain, which has no data key.
func (t *Trail) Hasher() (keyring.Hasher, error) { return t.keys.DeriveHasher("operator") }

// Record adds an entry about something that changes no row, such as issuing a token.
func (t *Trail) Record(ctx context.Context, e Entry) error {
	err := t.db.RunTx(ctx, func(tx *db.Tx) error { return Insert(ctx, tx, e) })
	if err != nil {
		return fmt.Errorf("write audit entry: %w", err)
	}
	return nil
}

// Filter selects entries of the audit trail. A zero field selects all.
type Filter struct {
	// App is the name or the id of an app.
	App   string
	Actor string // compared exactly
	// Action selects this action and those that begin with it and a dot; with a dot at its end the latter alone.
	Action string
	// Since is inclusive, Until exclusive.
	Since time.Time
	Until time.Time
}

// MaxPageSize bounds the entries of one page.
const MaxPageSize = 100

// Query selects a page of the audit trail.
type Query struct {
	Filter
	// Size is the number of entries on the page, 1 to MaxPageSize.
	Size int
	// Token is the page token from the page before, "" for the newest entries.
	Token string
}

// entryColumns are the columns that [scanEntries] reads, in its order.
const entryColumns = `id, at, actor, issuer, action, app, app_id, client, request_id, detail, seq, prev, hash`

// entryFilterSQL is the condition of an [Filter]; its parameters $1 to $5 are those of filterArgs. SUBSTR is used
// instead of LIKE, so that an action from a caller cannot contain a pattern.
const entryFilterSQL = `(CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1) AND (CAST($2 AS TEXT) = '' OR actor = $2)
	AND (CAST($3 AS TEXT) = '' OR action = $3 OR SUBSTR(action, 1, LENGTH($3) + 1) = $3 || '.'
		OR SUBSTR($3, LENGTH($3)) = '.' AND SUBSTR(action, 1, LENGTH($3)) = $3)
	AND at >= $4 AND at < $5`

// filterArgs returns the parameters of entryFilterSQL. 1<<62 microseconds stand for no end.
func (f Filter) filterArgs() []any {
	since, until := int64(0), int64(1<<62)
	if !f.Since.IsZero() {
		since = f.Since.UnixMicro()
	}
	if !f.Until.IsZero() {
		until = f.Until.UnixMicro()
	}
	return []any{f.App, f.Actor, f.Action, since, until}
}

// List returns a page of the audit trail, the newest entry first, and the token of the next page, "" on the
// last one. It chains committed entries first, so that the returned ones have their numbers and hashes. The position is
// the pair (at, id), which the index audit_at orders.
func (t *Trail) List(ctx context.Context, q Query) (entries []Entry, next string, err error) {
	if q.Size < 1 || q.Size > MaxPageSize {
		return nil, "", agentsvc.NewInvalidError("page_size", "must be 1 to %d", MaxPageSize)
	}
	list := fmt.Sprintf("audit/%q", q.filterArgs())
	position, err := t.keys.DecodeCursor(list, q.Token)
	if err != nil {
		return nil, "", agentsvc.NewInvalidError("page_token", "%v", err)
	}
	at, id := int64(1<<62), ""
	if position != "" {
		when, last, _ := strings.Cut(position, "/")
		if at, err = strconv.ParseInt(when, 10, 64); err != nil {
			return nil, "", agentsvc.NewInvalidError("page_token", "%v", keyring.ErrInvalidCursor)
		}
		id = last
	}
	if err := t.chains.sealAll(ctx); err != nil {
		return nil, "", err
	}
	entries = []Entry{}
	var b db.Batch
	b.Query(scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE `+entryFilterSQL+` AND (at, id) < ($6, $7)
		ORDER BY at DESC, id DESC LIMIT $8`, append(q.filterArgs(), at, id, q.Size+1)...)
	if err := t.db.Do(ctx, &b); err != nil {
		return nil, "", fmt.Errorf("read the audit trail: %w", err)
	}
	if len(entries) > q.Size {
		entries = entries[:q.Size]
		last := entries[q.Size-1]
		next = t.keys.EncodeCursor(list, fmt.Sprintf("%d/%s", last.At.UnixMicro(), last.ID))
	}
	return entries, next, nil
}

// scanEntries returns a read function that appends each row of entryColumns to to.
func scanEntries(to *[]Entry) func(db.Row) error {
	return func(row db.Row) error {
		var e Entry
		var at int64
		var app, detail string
		err := row.Scan(&e.ID, &at, &e.Actor.Name, &e.Actor.Issuer, &e.Action, &e.App, &app, &e.Actor.Client, &e.Actor.Request, &detail, &e.Seq, &e.Prev, &e.Hash)
		if err != nil {
			return err
		}
		e.At, e.AppID = time.UnixMicro(at).UTC(), db.ID(app)
		if e.Detail, err = decodeDetail([]byte(detail)); err != nil {
			return fmt.Errorf("audit entry %s: %w", e.ID, err)
		}
		*to = append(*to, e)
		return nil
	}
}
