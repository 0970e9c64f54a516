package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// Bodies are read in the statement that finds them where they are small. Of larger ones it returns the sizes: what is to be read
// of them is decided before they are in memory, and counts for the work that reads them ([capacity.ReservationFrom]).

const (
	// maxInlineBytes is how many bytes of bodies of one kind are read without a look at their size.
	maxInlineBytes = 64 << 10
	// maxPageBytes is after how many bytes a page of tasks ends; it has one task at least.
	maxPageBytes = 8 << 20
	// maxHistoryBytes is how many bytes of a task's messages are read: the newest ones, and one at least. The largest message that is taken
	// in, and its answer, are fewer.
	maxHistoryBytes = 36 << 20
)

// column of a body that is read if it, or what the expression size says, is small.
func smallBodySQL(body, size string) string {
	return `CASE WHEN ` + size + ` <= ` + strconv.Itoa(maxInlineBytes) + ` THEN ` + body + ` END`
}

// sizedEvent is an event whose body was read or is yet to be.
type sizedEvent struct {
	agentsvc.Event
	kind     string
	size     int64 // of the body, in bytes
	isLoaded bool
}

// sizedEventsSQL reads seq, at, kind, size of the body, and the body where those of all events together are small, of the events of the
// task $2 of the tenant $1 that fulfil the condition.
func sizedEventsSQL(condition string) string {
	of := `tenant = $1 AND task = $2 AND ` + condition
	return `SELECT seq, at, kind, octet_length(body), ` + smallBodySQL("body", "sized.total") + ` FROM event
		CROSS JOIN (SELECT COALESCE(SUM(octet_length(body)), 0) AS total FROM event WHERE ` + of + `) AS sized
		WHERE ` + of + ` ORDER BY seq`
}

// scanSizedEventsInto appends the event of a row of [sizedEventsSQL].
func scanSizedEventsInto(id agentsvc.TaskID, to *[]sizedEvent) func(db.Row) error {
	return func(r db.Row) error {
		e := sizedEvent{Event: agentsvc.Event{Task: id}}
		var at int64
		var body []byte
		if err := r.Scan(&e.Seq, &at, &e.kind, &e.size, &body); err != nil {
			return err
		}
		e.At = time.UnixMicro(at).UTC()
		if e.isLoaded = body != nil; e.isLoaded {
			if err := decodeEvent(&e.Event, body); err != nil {
				return err
			}
		}
		*to = append(*to, e)
		return nil
	}
}

// taskReading is a task that is being read.
type taskReading struct {
	StoredTask
	statusSeq     int64
	unreadBytes   int64 // bytes of the status, where they were not read with the task
	inlineBytes   int   // bytes that were read with the task
	events        []sizedEvent
	approvalBytes int64 // bytes of those that are open
}

// trimHistory leaves out the oldest messages of a history that is too long. It returns how many bytes the task has without them.
func (r *taskReading) trimHistory() (total int64) {
	total = r.unreadBytes + int64(r.inlineBytes) + r.approvalBytes
	var history int64
	full := false
	stored := r.events[:0:0]
	for _, e := range slices.Backward(r.events) {
		if e.Seq > r.Seq {
			continue
		}
		if e.kind != kindArtifact {
			full = full || history > 0 && history+e.size > maxHistoryBytes
			if full {
				continue
			}
			history += e.size
		}
		total += e.size
		stored = append(stored, e)
	}
	slices.Reverse(stored)
	r.events = stored
	return total
}

// isIncomplete reports whether something of the task is yet to be read.
func (r *taskReading) isIncomplete() bool {
	return r.unreadBytes > 0 || slices.ContainsFunc(r.events, func(e sizedEvent) bool { return !e.isLoaded }) || r.approvalBytes > maxInlineBytes
}

// missingEventsSQL is the condition of the events that are yet to be read, "" where there are none. Of one task all have been read or none.
func (r *taskReading) missingEventsSQL() string {
	var conditions []string
	for _, e := range r.events {
		switch {
		case e.isLoaded:
			return ""
		case e.kind != kindArtifact && !slices.ContainsFunc(conditions, func(c string) bool { return strings.Contains(c, kindMessage) }):
			conditions = append(conditions, fmt.Sprintf(`kind IN ('%s', '%s') AND seq >= %d`, kindStatus, kindMessage, e.Seq)) // the oldest
		case e.kind == kindArtifact && !slices.Contains(conditions, artifactCondition):
			conditions = append(conditions, artifactCondition)
		}
	}
	return strings.Join(conditions, ` OR `)
}

const artifactCondition = `kind = '` + kindArtifact + `'`

// loadMissing reads what is lacking of tasks that have total bytes, once there is memory for it.
func (s *Store) loadMissing(ctx context.Context, tasks []taskReading, total int64) error {
	if err := capacity.ReservationFrom(ctx).ReserveBytes(ctx, total); err != nil {
		return err
	}
	var b db.Batch
	lacking := false
	read := make([][]agentsvc.Event, len(tasks))
	for i := range tasks {
		t := &tasks[i]
		if !t.isIncomplete() {
			continue
		}
		lacking = true
		if t.unreadBytes > 0 {
			var status []agentsvc.Event
			b.Query(func(r db.Row) error {
				err := scanEvent(r, t.ID, &status)
				if err == nil && status[0].Status != nil {
					t.Status = *status[0].Status
				}
				return err
			}, `SELECT seq, at, body FROM event WHERE tenant = $1 AND task = $2 AND seq = $3`, s.tenant, string(t.ID), t.statusSeq)
		}
		if t.approvalBytes > maxInlineBytes {
			s.queryApprovals(&b, t.ID, &t.Approvals)
		}
		if chosen := t.missingEventsSQL(); chosen != "" {
			b.Query(scanEventsInto(t.ID, &read[i]), `SELECT seq, at, body FROM event WHERE tenant = $1 AND task = $2 AND seq <= $3 AND (`+chosen+`) ORDER BY seq`,
				s.tenant, string(t.ID), t.Seq)
		}
	}
	if lacking {
		if err := s.h.Do(ctx, &b); err != nil {
			return fmt.Errorf("read large tasks: %w", err)
		}
	}
	for i := range tasks {
		tasks[i].foldEvents(mergeEvents(tasks[i].events, read[i]))
	}
	return nil
}

// mergeEvents returns events with those that were read later in their places.
func mergeEvents(events []sizedEvent, later []agentsvc.Event) []agentsvc.Event {
	all := make([]agentsvc.Event, 0, len(events))
	for _, e := range events {
		if !e.isLoaded {
			if len(later) == 0 {
				break // the task is gone
			}
			e.Event, later = later[0], later[1:]
		}
		all = append(all, e.Event)
	}
	return all
}
