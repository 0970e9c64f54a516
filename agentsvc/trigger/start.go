package trigger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// StartKind is what a [Start] came from.
type StartKind string

// The kinds: a tick of a schedule, a start by hand, a delivery to a webhook.
const (
	TickStart     StartKind = "tick"
	ManualStart   StartKind = "manual"
	DeliveryStart StartKind = "delivery"
)

// Start is what became of an attempt to start an agent by its trigger.
type Start struct {
	At   time.Time
	Kind StartKind
	// Outcome is started, repeated, unsigned, refused, invalid or failed, as in the metrics.
	Outcome string
	Task    agentsvc.TaskID
	// Error is why there is no task, "" if there is one.
	Error string
}

// Bounds of the stored starts: of an agent, of an app, and the text of an error in bytes. The oldest are deleted.
const (
	MaxStarts       = 20
	maxStartsPerApp = 1000
	maxStartError   = 500
)

// RecordStart stores a start, with its time. If an app has too many, its oldest are deleted.
func RecordStart(ctx context.Context, d *db.DB, app db.ID, agent string, s Start) error {
	var b db.Batch
	queueStart(&b, app, agent, s)
	if err := d.Tenant(app).Do(ctx, &b); err != nil {
		return fmt.Errorf("record the start of an agent: %w", err)
	}
	return nil
}

// queueStart adds the statements of RecordStart to b.
func queueStart(b *db.Batch, app db.ID, agent string, s Start) {
	b.Exec(nil, `INSERT INTO trigger_start (tenant, agent, id, at, kind, outcome, task, error) VALUES ($1, $2, $3, stoa_now(), $4, $5, $6, $7)`,
		string(app), agent, agentsvc.NewID(), string(s.Kind), s.Outcome, string(s.Task), strings.ToValidUTF8(s.Error[:min(len(s.Error), maxStartError)], ""))
	b.Exec(nil, `DELETE FROM trigger_start WHERE tenant = $1 AND agent = $2 AND id <= (
		SELECT id FROM trigger_start WHERE tenant = $1 AND agent = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)`, string(app), agent, MaxStarts)
	b.Exec(nil, `DELETE FROM trigger_start WHERE tenant = $1 AND id <= (
		SELECT id FROM trigger_start WHERE tenant = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)`, string(app), maxStartsPerApp)
}

// ListStarts returns the last starts of an agent by its trigger, the newest first, at most [MaxStarts].
func ListStarts(ctx context.Context, d *db.DB, app db.ID, agent string) ([]Start, error) {
	var starts []Start
	var b db.Batch
	b.Query(func(r db.Row) error {
		var s Start
		var at int64
		err := r.Scan(&at, (*string)(&s.Kind), &s.Outcome, (*string)(&s.Task), &s.Error)
		s.At = time.UnixMicro(at)
		starts = append(starts, s)
		return err
	}, `SELECT at, kind, outcome, task, error FROM trigger_start WHERE tenant = $1 AND agent = $2 ORDER BY id DESC LIMIT $3`, string(app), agent, MaxStarts)
	if err := d.Tenant(app).Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read the starts of an agent: %w", err)
	}
	return starts, nil
}
