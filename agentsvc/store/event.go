package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// maxInsertEvents bounds the events of one INSERT, and so the number of texts that insertEventsTexts caches.
const maxInsertEvents = 64

// Events are the logs of a tenant's tasks.
type Events struct {
	*tenantRows
}

// Load returns the facts of a task after a sequence, in order and at most limit. Their bytes are reserved from
// memory before large ones are read.
func (e *Events) Load(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, after int64, limit int) ([]agentsvc.Event, error) {
	var found eventReading
	var b db.Batch
	found.addQuery(&b, e.tenant, id, after, limit)
	if err := e.h.Do(ctx, &b); err != nil {
		return nil, fmt.Errorf("read events of task %s: %w", id, err)
	}
	if err := memory.ReserveBytes(ctx, found.bytes); err != nil || !found.isTooLarge {
		return found.events, err
	}
	var evs []agentsvc.Event
	var large db.Batch
	large.Query(scanEventsInto(id, &evs), eventsAfterSQL, e.tenant, string(id), after, limit)
	if err := e.h.Do(ctx, &large); err != nil {
		return nil, fmt.Errorf("read events of task %s: %w", id, err)
	}
	return evs, nil
}

// eventReading receives events that are read in one statement if all of them together are small.
type eventReading struct {
	events     []agentsvc.Event
	bytes      int64 // size of all bodies, also where they are too large
	isTooLarge bool
}

// addQuery adds to b the read of a task's facts after a sequence, or of their size where they are large.
func (e *eventReading) addQuery(b *db.Batch, tenant string, id agentsvc.TaskID, after int64, limit int) {
	b.Query(func(r db.Row) error {
		ev := agentsvc.Event{Task: id}
		var at int64
		var body []byte
		if err := r.Scan(&ev.Seq, &at, &e.bytes, &body); err != nil {
			return err
		}
		if e.isTooLarge = body == nil; e.isTooLarge {
			return nil
		}
		ev.At = time.UnixMicro(at).UTC()
		if err := decodeEvent(&ev, body); err != nil {
			return err
		}
		e.events = append(e.events, ev)
		return nil
	}, sizedEventsUpToSQL, tenant, string(id), after, limit)
}

// sizedEventsUpToSQL returns each event with the total size of all and, where that is at most maxInlineBytes, its
// body.
var sizedEventsUpToSQL = `SELECT seq, at, sized.total, ` + smallBodySQL("body", "sized.total") + ` FROM event
	CROSS JOIN (SELECT CAST(COALESCE(SUM(size), 0) AS BIGINT) AS total FROM (
		SELECT octet_length(body) AS size FROM event WHERE tenant = $1 AND task = $2 AND seq > $3 ORDER BY seq LIMIT $4) AS sizes) AS sized
	WHERE tenant = $1 AND task = $2 AND seq > $3 ORDER BY seq LIMIT $4`

// LoadPage returns the facts of a task after a sequence, in order: at most limit, of together at most size bytes
// as stored, but at least one. more reports whether there may be further ones. A fact that is by itself larger than
// size is read in a second statement, after its bytes are reserved from memory.
func (e *Events) LoadPage(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, after int64, limit int, size int64) (evs []agentsvc.Event, more bool, err error) {
	var next, large int64 // the first event that did not fit, and its size
	var b db.Batch
	b.Query(func(r db.Row) error {
		ev := agentsvc.Event{Task: id}
		var at, bytes int64
		var body []byte
		if err := r.Scan(&ev.Seq, &at, &bytes, &body); err != nil {
			return err
		}
		if body == nil {
			next, large = ev.Seq, bytes
			return nil
		}
		ev.At = time.UnixMicro(at).UTC()
		if err := decodeEvent(&ev, body); err != nil {
			return err
		}
		evs = append(evs, ev)
		return nil
	}, eventPageSQL, e.tenant, string(id), after, limit, size)
	if err := e.h.Do(ctx, &b); err != nil {
		return nil, false, fmt.Errorf("read events of task %s: %w", id, err)
	}
	if next == 0 || len(evs) > 0 {
		return evs, next > 0 || len(evs) == limit, nil
	}
	if err := memory.ReserveBytes(ctx, large); err != nil {
		return nil, false, err
	}
	var one db.Batch
	one.Query(scanEventsInto(id, &evs), eventsAfterSQL, e.tenant, string(id), next-1, 1)
	if err := e.h.Do(ctx, &one); err != nil {
		return nil, false, fmt.Errorf("read an event of task %s: %w", id, err)
	}
	return evs, len(evs) > 0, nil
}

// eventPageSQL selects the events up to a total size and, of the first one beyond, only the size. The window function
// works on sizes alone, so that no engine copies bodies to add them up; the join then reads the selected bodies.
const eventPageSQL = `SELECT e.seq, e.at, p.size, CASE WHEN p.total <= $5 THEN e.body END FROM (
		SELECT seq, size, CAST(SUM(size) OVER (ORDER BY seq) AS BIGINT) AS total
		FROM (SELECT seq, octet_length(body) AS size FROM event WHERE tenant = $1 AND task = $2 AND seq > $3 ORDER BY seq LIMIT $4) AS sizes
	) AS p JOIN event e ON e.tenant = $1 AND e.task = $2 AND e.seq = p.seq
	WHERE p.total - p.size < $5 ORDER BY e.seq`

// eventsAfterSQL reads events with their bodies, whatever their size.
const eventsAfterSQL = `SELECT seq, at, body FROM event WHERE tenant = $1 AND task = $2 AND seq > $3 ORDER BY seq LIMIT $4`

// scanEventsInto returns a row function that appends events of task id to to.
func scanEventsInto(id agentsvc.TaskID, to *[]agentsvc.Event) func(db.Row) error {
	return func(r db.Row) error { return scanEvent(r, id, to) }
}

// scanEvent appends the event of a row (seq, at, body) to to and reads the columns after it into more.
func scanEvent(r db.Row, id agentsvc.TaskID, to *[]agentsvc.Event, more ...any) error {
	ev := agentsvc.Event{Task: id}
	var at int64
	var body []byte
	if err := r.Scan(append([]any{&ev.Seq, &at, &body}, more...)...); err != nil {
		return err
	}
	ev.At = time.UnixMicro(at).UTC()
	if err := decodeEvent(&ev, body); err != nil {
		return err
	}
	*to = append(*to, ev)
	return nil
}

// insertEvents adds the events to b, under g.
func insertEvents(b *db.Batch, tenant string, id agentsvc.TaskID, evs []agentsvc.Event, g *precondition) error {
	rows, err := eventRows(tenant, id, evs)
	if err != nil {
		return err
	}
	insertEventRows(b, rows, g)
	return nil
}

// insertEventRows adds rows of eventRows to b, under g.
func insertEventRows(b *db.Batch, rows [][]any, g *precondition) {
	for part := range slices.Chunk(rows, maxInsertEvents) {
		args := append(make([]any, 0, 4+4*len(part)), part[0][0], part[0][1], g.epoch, g.seq)
		for _, row := range part {
			args = append(args, row[2:]...)
		}
		b.Exec(nil, insertEventsSQL(len(part)), args...)
	}
}

// insertEventsTexts caches the statements of insertEventsSQL: number of events to text.
var insertEventsTexts sync.Map

// insertEventsSQL returns the statement that inserts n events. Its parameters are tenant, task, epoch and sequence of
// the precondition, then seq, at, kind and body of each event.
func insertEventsSQL(n int) string {
	if sql, ok := insertEventsTexts.Load(n); ok {
		return sql.(string)
	}
	values := make([]string, n)
	for i := range n {
		p := 5 + 4*i
		values[i] = fmt.Sprintf("(CAST($%d AS BIGINT), CAST($%d AS BIGINT), CAST($%d AS TEXT), CAST($%d AS TEXT))", p, p+1, p+2, p+3)
	}
	sql := "INSERT INTO event (tenant, task, seq, at, kind, body) " +
		"SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), v.column1, v.column2, v.column3, v.column4 FROM (VALUES " + strings.Join(values, ", ") + ") AS v " +
		"WHERE EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4)"
	insertEventsTexts.Store(n, sql)
	return sql
}
