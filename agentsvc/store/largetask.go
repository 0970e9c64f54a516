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

// Bodies of events may be large, and a process reads many at once. So a statement that finds events returns the
// bodies only where all of them together are small, else their sizes. The caller then reserves the memory
// of the bodies and reads them in a second statement. Each read names the [capacity.MemoryReservation] for that; nil has no
// bound.

const (
	// maxInlineBytes is the total size up to which bodies are read without a reservation before. It is
	// capacity.FreeBytes, which every reservation includes.
	maxInlineBytes = 64 << 10
	// maxPageBytes is the size at which a page of tasks ends. A page has at least one task.
	maxPageBytes = 8 << 20
	// maxHistoryBytes bounds the messages that are read of one task: the newest ones, at least one. The largest
	// message that a surface accepts, with its answer, is smaller.
	maxHistoryBytes = 36 << 20
)

// smallBodySQL returns a column with the body, or NULL where the expression size exceeds maxInlineBytes.
func smallBodySQL(body, size string) string {
	return `CASE WHEN ` + size + ` <= ` + strconv.Itoa(maxInlineBytes) + ` THEN ` + body + ` END`
}

// sizedEvent is an event whose body has been read (isLoaded) or is still to be read.
type sizedEvent struct {
	agentsvc.Event
	kind     string
	size     int64 // of the body
	isLoaded bool
}

// sizedEventsSQL returns the statement that reads seq, at, kind, body size and, where all bodies together are small,
// the body of the events of task $2 of tenant $1 that fulfil the condition.
func sizedEventsSQL(condition string) string {
	of := `tenant = $1 AND task = $2 AND ` + condition
	return `SELECT seq, at, kind, octet_length(body), ` + smallBodySQL("body", "sized.total") + ` FROM event
		CROSS JOIN (SELECT COALESCE(SUM(octet_length(body)), 0) AS total FROM event WHERE ` + of + `) AS sized
		WHERE ` + of + ` ORDER BY seq`
}

// scanSizedEventsInto returns the row function of sizedEventsSQL, which appends to to.
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

// taskReading is a task while it is read in several steps. The order is: scanTask, sizes (loadSizes), trimHistory,
// loadMissing.
type taskReading struct {
	StoredTask
	statusSeq     int64        // sequence of the status event
	unreadBytes   int64        // size of the status, if it was too large to be read with the task
	inlineBytes   int          // bytes of bodies that were read with the task
	events        []sizedEvent // of the requested parts
	approvalBytes int64        // size of the open approvals
}

// trimHistory removes the oldest messages of a history beyond maxHistoryBytes, and events that were committed after
// the task was read. It returns the size of what remains to be in memory.
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

// isIncomplete reports whether some body of the task is still to be read.
func (r *taskReading) isIncomplete() bool {
	return r.unreadBytes > 0 || slices.ContainsFunc(r.events, func(e sizedEvent) bool { return !e.isLoaded }) || r.approvalBytes > maxInlineBytes
}

// missingEventsSQL returns the condition of the events whose bodies are still to be read, "" if there are none.
// sizedEventsSQL has read all bodies of a task or none, so the first loaded one decides.
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

// artifactCondition selects the artifact events; artifacts are never trimmed.
const artifactCondition = `kind = '` + kindArtifact + `'`

// loadMissing reserves total bytes of memory, reads the missing bodies of the tasks in one batch and folds the events
// into the tasks.
func (tas *Tasks) loadMissing(ctx context.Context, memory *capacity.MemoryReservation, tasks []taskReading, total int64) error {
	if err := memory.ReserveBytes(ctx, total); err != nil {
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
			}, `SELECT seq, at, body FROM event WHERE tenant = $1 AND task = $2 AND seq = $3`, tas.tenant, string(t.ID), t.statusSeq)
		}
		if t.approvalBytes > maxInlineBytes {
			tas.queryApprovals(&b, t.ID, &t.Approvals)
		}
		if chosen := t.missingEventsSQL(); chosen != "" {
			b.Query(scanEventsInto(t.ID, &read[i]), `SELECT seq, at, body FROM event WHERE tenant = $1 AND task = $2 AND seq <= $3 AND (`+chosen+`) ORDER BY seq`,
				tas.tenant, string(t.ID), t.Seq)
		}
	}
	if lacking {
		if err := tas.h.Do(ctx, &b); err != nil {
			return fmt.Errorf("read large tasks: %w", err)
		}
	}
	for i := range tasks {
		tasks[i].foldEvents(mergeEvents(tasks[i].events, read[i]))
	}
	return nil
}

// mergeEvents returns the events in order, with those that were read later instead of those without a body.
func mergeEvents(events []sizedEvent, later []agentsvc.Event) []agentsvc.Event {
	all := make([]agentsvc.Event, 0, len(events))
	for _, e := range events {
		if !e.isLoaded {
			if len(later) == 0 {
				break // the task was deleted between the two statements
			}
			e.Event, later = later[0], later[1:]
		}
		all = append(all, e.Event)
	}
	return all
}
