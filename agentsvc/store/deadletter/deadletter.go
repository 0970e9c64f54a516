// Package deadletter finds the runs that have failed for good, of all tenants. What ends a run so and what opens a new
// task in its place are changes of tasks (store.DeadLetters).
package deadletter

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// ID identifies a dead letter: the turn of a task whose run has failed.
type ID struct {
	Task agentsvc.TaskID
	Turn int64
}

// String returns the id as operators see it: task and turn with a dot between them.
func (id ID) String() string { return string(id.Task) + "." + strconv.FormatInt(id.Turn, 10) }

// ParseID parses what [ID.String] returns; ok is false for anything else.
func ParseID(s string) (id ID, ok bool) {
	task, turn, found := strings.Cut(s, ".")
	n, err := strconv.ParseInt(turn, 10, 64)
	return ID{agentsvc.TaskID(task), n}, found && err == nil && uuid.Validate(task) == nil
}

// Letter is a failed run with what an operator needs to judge it.
type Letter struct {
	ID       ID
	Tenant   db.ID
	App      string // the tenant's name, its id if it has none
	Agent    string
	Attempts int64
	Error    string // of the last attempt
	FailedAt time.Time
}

// Filter selects dead letters. Zero fields select all.
type Filter struct {
	ID     ID
	App    string // the tenant's name
	Agent  string
	Error  string // substring of the last error
	Before ID     // the last one of the previous page
	Limit  int
}

// fromSQL selects the dead letters by the index run_failed. The substring test is REPLACE instead of LIKE,
// which would interpret % and _ and differ between the engines.
const fromSQL = ` FROM run r JOIN task t ON t.tenant = r.tenant AND t.id = r.task LEFT JOIN app a ON a.tenant = r.tenant
	WHERE r.state = 'failed' AND ($1 = '' OR r.task = $1 AND r.turn = CAST($2 AS BIGINT)) AND ($3 = '' OR COALESCE(a.name, r.tenant) = $3)
	AND ($4 = '' OR t.agent = $4) AND ($5 = '' OR REPLACE(r.last_error, $5, '') <> r.last_error)`

// List returns the dead letters in d that f selects, those of the newest tasks first, and their number on all pages.
func List(ctx context.Context, d *db.DB, f Filter) (dead []Letter, total int, err error) {
	args := []any{string(f.ID.Task), f.ID.Turn, f.App, f.Agent, f.Error}
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&total) }, `SELECT COUNT(*)`+fromSQL, args...)
	b.Query(func(r db.Row) error {
		var l Letter
		var at int64
		err := r.Scan((*string)(&l.ID.Task), &l.ID.Turn, (*string)(&l.Tenant), &l.App, &l.Agent, &l.Attempts, &l.Error, &at)
		l.FailedAt = time.UnixMicro(at).UTC()
		dead = append(dead, l)
		return err
	}, `SELECT r.task, r.turn, r.tenant, COALESCE(a.name, r.tenant), t.agent, r.attempts, r.last_error, r.available_at`+fromSQL+`
		AND ($6 = '' OR r.task < $6 OR r.task = $6 AND r.turn < CAST($7 AS BIGINT)) ORDER BY r.task DESC, r.turn DESC LIMIT $8`,
		append(args, string(f.Before.Task), f.Before.Turn, f.Limit)...)
	if err := d.Platform().Do(ctx, &b); err != nil {
		return nil, 0, fmt.Errorf("list dead letters: %w", err)
	}
	return dead, total, nil
}
