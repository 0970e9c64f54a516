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

// Entry is one line of the audit trail: who did what to which app. Detail never holds a secret.
type Entry struct {
	ID     string
	At     time.Time
	Actor  string
	Action string
	App    string // its name at the time
	AppID  db.ID
	Detail map[string]any
}

// Audit adds an entry to the trail in the transaction of what it tells of, under the platform's handle. ID and At are
// set by it.
func Audit(ctx context.Context, tx *db.Tx, e Entry) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	detail, err := json.Marshal(e.Detail)
	if err != nil {
		return fmt.Errorf("audit entry %s: %w", e.Action, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO audit (id, at, actor, action, app, app_id, detail) VALUES ($1, stoa_now(), $2, $3, $4, $5, $6)`,
		id.String(), e.Actor, e.Action, e.App, string(e.AppID), string(detail))
	return err
}

// Audit adds an entry to the trail about something that is not in the database, such as a token that was issued.
func (s *Service) Audit(ctx context.Context, e Entry) error {
	err := s.db.Platform().Tx(ctx, func(tx *db.Tx) error { return Audit(ctx, tx, e) })
	if err != nil {
		return fmt.Errorf("write audit entry: %w", err)
	}
	return nil
}

// AuditQuery selects entries of the trail.
type AuditQuery struct {
	App   string // name or id, "" = all
	Actor string // "" = all
	Size  int    // of the page, 1 to 100
	Token string // of the page, "" = the newest entries
}

// AuditTrail returns a page of the trail, the newest entry first, and the token of the next page, "" at the end.
func (s *Service) AuditTrail(ctx context.Context, q AuditQuery) (entries []Entry, next string, err error) {
	if err := checkSize(q.Size); err != nil {
		return nil, "", err
	}
	list := fmt.Sprintf("audit/%q/%q", q.App, q.Actor)
	position, err := s.keys.Position(list, q.Token)
	if err != nil {
		return nil, "", err
	}
	at, id := int64(1<<62), ""
	if position != "" {
		when, last, _ := strings.Cut(position, "/")
		if at, err = strconv.ParseInt(when, 10, 64); err != nil {
			return nil, "", invalid("page_token", "is not a token of this list")
		}
		id = last
	}
	entries = []Entry{}
	var b db.Batch
	b.Query(func(row db.Row) error {
		e, err := scanEntry(row)
		entries = append(entries, e)
		return err
	}, `SELECT id, at, actor, action, app, app_id, detail FROM audit
		WHERE (at, id) < ($1, $2) AND (CAST($3 AS TEXT) = '' OR app = $3 OR app_id = $3) AND (CAST($4 AS TEXT) = '' OR actor = $4)
		ORDER BY at DESC, id DESC LIMIT $5`, at, id, q.App, q.Actor, q.Size+1)
	if err := s.db.Platform().Do(ctx, &b); err != nil {
		return nil, "", fmt.Errorf("read the audit trail: %w", err)
	}
	if len(entries) > q.Size {
		entries = entries[:q.Size]
		last := entries[q.Size-1]
		next = s.keys.Cursor(list, fmt.Sprintf("%d/%s", last.At.UnixMicro(), last.ID))
	}
	return entries, next, nil
}

func scanEntry(row db.Row) (Entry, error) {
	var e Entry
	var at int64
	var app, detail string
	if err := row.Scan(&e.ID, &at, &e.Actor, &e.Action, &e.App, &app, &detail); err != nil {
		return e, err
	}
	e.At, e.AppID = micros(at), db.ID(app)
	if err := json.Unmarshal([]byte(detail), &e.Detail); err != nil {
		return e, fmt.Errorf("audit entry %s: %w", e.ID, err)
	}
	return e, nil
}
