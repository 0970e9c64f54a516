package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stoa/tenancy/db"
)

// System is the actor of what the platform does by itself.
const System = "stoa"

// AuditEntry is one line of the audit trail: who did what to which app, from where. Detail never holds a secret.
type AuditEntry struct {
	ID      string
	At      time.Time
	Actor   string
	Issuer  string // who vouches for Actor; "" = nobody: it is the platform's operator, or the platform itself
	Action  string
	App     string // its name at the time
	AppID   db.ID
	Client  string // address that the request came from, "" = there was none
	Request string // its id, under which it stands in the log
	Detail  map[string]any

	Seq  int64  // its place in the chain of its app, from 1; 0 = it is not in it yet
	Prev string // the hash of the entry before it
	Hash string
}

// InsertAuditEntry adds an entry to the trail in the transaction of what it tells of. ID and At are set by it, Client and Request
// by ctx (see [WithOrigin]), and App, where it is empty, by AppID. The trail is chained a moment later, so that nobody
// waits for anybody; see [Service.Seal].
//
// The platform's handle writes any entry, a tenant's those of its own app.
func InsertAuditEntry(ctx context.Context, tx *db.Tx, e AuditEntry) error {
	args, err := e.insertArgs(ctx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, insertEntrySQL, args...)
	return err
}

// QueueAuditEntry adds to b what [Audit] does, where an SQL condition of ours holds, whose parameters are numbered from $10.
func QueueAuditEntry(ctx context.Context, b *db.Batch, e AuditEntry, condition string, args ...any) error {
	row, err := e.insertArgs(ctx)
	if err != nil {
		return err
	}
	b.Exec(nil, insertEntrySQL+` WHERE `+condition, append(row, args...)...)
	return nil
}

const insertEntrySQL = `INSERT INTO audit (id, at, actor, issuer, action, app, app_id, client, request_id, detail)
	SELECT CAST($1 AS TEXT), stoa_now(), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT),
		COALESCE(NULLIF(CAST($5 AS TEXT), ''), (SELECT name FROM app WHERE tenant = CAST($6 AS TEXT)), CAST($6 AS TEXT)),
		CAST($6 AS TEXT), CAST($7 AS TEXT), CAST($8 AS TEXT), CAST($9 AS TEXT)`

// insertArgs returns the parameters of insertEntrySQL.
func (e AuditEntry) insertArgs(ctx context.Context) ([]any, error) {
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
	o := originFromContext(ctx)
	return []any{id.String(), e.Actor, e.Issuer, e.Action, e.App, string(e.AppID), o.Client, o.Request, string(detail)}, nil
}

// RecordAuditEntry adds an entry to the trail about something that is not in the database, such as a token that was issued.
func (s *Service) RecordAuditEntry(ctx context.Context, e AuditEntry) error {
	err := s.db.Platform().RunTx(ctx, func(tx *db.Tx) error { return InsertAuditEntry(ctx, tx, e) })
	if err != nil {
		return fmt.Errorf("write audit entry: %w", err)
	}
	return nil
}

// AuditFilter selects entries of the trail. Zero fields select all.
type AuditFilter struct {
	App    string    // name or id
	Actor  string    // exactly
	Action string    // exactly, or all that begin with it and a dot
	Since  time.Time // at this time or later
	Until  time.Time // before this time
}

// AuditQuery asks for a page of the trail.
type AuditQuery struct {
	AuditFilter
	Size  int    // 1 to 100
	Token string // "" = the newest entries
}

const entryColumns = `id, at, actor, issuer, action, app, app_id, client, request_id, detail, seq, prev, hash`

// entryFilterSQL is the condition of an [AuditFilter] whose args begin at $1.
const entryFilterSQL = `(CAST($1 AS TEXT) = '' OR app = $1 OR app_id = $1) AND (CAST($2 AS TEXT) = '' OR actor = $2)
	AND (CAST($3 AS TEXT) = '' OR action = $3 OR SUBSTR(action, 1, LENGTH($3) + 1) = $3 || '.')
	AND at >= $4 AND at < $5`

func (f AuditFilter) filterArgs() []any {
	since, until := int64(0), int64(1<<62)
	if !f.Since.IsZero() {
		since = f.Since.UnixMicro()
	}
	if !f.Until.IsZero() {
		until = f.Until.UnixMicro()
	}
	return []any{f.App, f.Actor, f.Action, since, until}
}

// ListAuditEntries returns a page of the trail, the newest entry first, and the token of the next page, "" at the end.
func (s *Service) ListAuditEntries(ctx context.Context, q AuditQuery) (entries []AuditEntry, next string, err error) {
	if err := checkPageSize(q.Size); err != nil {
		return nil, "", err
	}
	list := fmt.Sprintf("audit/%q", q.filterArgs())
	position, err := s.keys.DecodeCursor(list, q.Token)
	if err != nil {
		return nil, "", err
	}
	at, id := int64(1<<62), ""
	if position != "" {
		when, last, _ := strings.Cut(position, "/")
		if at, err = strconv.ParseInt(when, 10, 64); err != nil {
			return nil, "", invalidField("page_token", "is not a token of this list")
		}
		id = last
	}
	if err := s.SealChains(ctx); err != nil {
		return nil, "", err
	}
	entries = []AuditEntry{}
	var b db.Batch
	b.Query(scanEntries(&entries), `SELECT `+entryColumns+` FROM audit WHERE `+entryFilterSQL+` AND (at, id) < ($6, $7)
		ORDER BY at DESC, id DESC LIMIT $8`, append(q.filterArgs(), at, id, q.Size+1)...)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, "", fmt.Errorf("read the audit trail: %w", err)
	}
	if len(entries) > q.Size {
		entries = entries[:q.Size]
		last := entries[q.Size-1]
		next = s.keys.EncodeCursor(list, fmt.Sprintf("%d/%s", last.At.UnixMicro(), last.ID))
	}
	return entries, next, nil
}

func scanEntries(to *[]AuditEntry) func(db.Row) error {
	return func(row db.Row) error {
		var e AuditEntry
		var at int64
		var app, detail string
		err := row.Scan(&e.ID, &at, &e.Actor, &e.Issuer, &e.Action, &e.App, &app, &e.Client, &e.Request, &detail, &e.Seq, &e.Prev, &e.Hash)
		if err != nil {
			return err
		}
		e.At, e.AppID = timeFromMicros(at), db.ID(app)
		if e.Detail, err = decodeDetail([]byte(detail)); err != nil {
			return fmt.Errorf("audit entry %s: %w", e.ID, err)
		}
		*to = append(*to, e)
		return nil
	}
}
