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

// TaskParts selects what is read of a task besides its status.
type TaskParts struct {
	History   bool
	Artifacts bool
	Approvals bool // the open ones
	Opening   bool // see [agentsvc.Task.Opening]; List alone reads it
	StateOnly bool // none of these, and of the status only its state
}

// StoredTask is a task as the database has it, with the values that conditional writes compare.
type StoredTask struct {
	agentsvc.Task
	Epoch        int64         // the task's fencing token, see [Lease]
	Turn         int64         // number of the current turn, from 1
	OpensContext bool          // the task was accepted without a context; read only by BeginRun
	FirstSeq     int64         // first sequence of the turn's journal; read only with the approvals
	EncodedCache *EncodedCache // encoded forms of this version; nil where the task was read with approvals or as state only
}

// TaskFilter selects tasks. Zero fields select all; Agents that is empty but not nil selects none. Before is the id
// of the last task of the previous page.
type TaskFilter struct {
	Agents  []string
	Context agentsvc.ContextID
	Owner   *agentsvc.Owner
	State   agentsvc.State
	After   time.Time // lower bound of the status time; zero = any
	// Since and Until, exclusive, bound the time at which the task was opened; zero = any.
	Since, Until time.Time
	// Text is looked for in the messages, see searchTasks; "" = any.
	Text   string
	Before agentsvc.TaskID
	Limit  int
	Parts  TaskParts
}

// taskColumns are the columns that scanTask reads: the task's row and the event of its status. The body is NULL where
// it is large.
var taskColumns = `t.id, t.agent, t.context_id, t.owner_iss, t.owner_sub, t.state, t.epoch, t.seq, t.turn, t.created_at, e.seq, e.at, octet_length(e.body), ` +
	smallBodySQL("e.body", "octet_length(e.body)")

// taskFrom joins each task with the event of its status by that table's primary key.
const taskFrom = ` FROM task t JOIN event e ON e.tenant = t.tenant AND e.task = t.id AND e.seq = t.status_seq`

// scanTask reads taskColumns and, into more, the columns after them. Of a large status it reads the state only;
// unreadBytes is the size of the rest.
func scanTask(r db.Row, more ...any) (t taskReading, err error) {
	var created, at, size int64
	var body []byte
	ev := agentsvc.Event{}
	err = r.Scan(append([]any{(*string)(&t.ID), &t.Agent, (*string)(&t.Context), &t.Owner.Issuer, &t.Owner.Subject, (*string)(&t.Status.State),
		&t.Epoch, &t.Seq, &t.Turn, &created, &ev.Seq, &at, &size, &body}, more...)...)
	if err != nil {
		return t, err
	}
	t.Created, t.statusSeq = time.UnixMicro(created).UTC(), ev.Seq
	ev.Task, ev.At = t.ID, time.UnixMicro(at).UTC()
	if body == nil {
		t.unreadBytes, t.Status.At = size, ev.At
		return t, nil
	}
	t.inlineBytes = len(body)
	if err := decodeEvent(&ev, body); err != nil {
		return t, err
	}
	if ev.Status != nil {
		t.Status = *ev.Status
	}
	return t, nil
}

// Tasks are the tasks of a tenant: what opens, continues and ends them, and what reads them.
type Tasks struct {
	*tenantRows
	cache  *taskCache  // decoded tasks, validated at each read
	counts *countCache // totals of older tasks for lists
}

// Load reads the given parts of a task as of one moment. It returns [agentsvc.ErrNotFound] if the tenant has no
// such task. The large parts are reserved from memory before they are read. The result may be shared with other callers and
// must not be modified.
func (tas *Tasks) Load(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, with TaskParts) (StoredTask, error) {
	if with.isCacheable() {
		if t, ok, err := tas.loadCachedTask(ctx, id, with); ok || err != nil {
			return t, err
		}
	}
	return tas.readTask(ctx, memory, id, with)
}

// readTask reads a task from its rows: in one transaction where everything is small, else in a second one after the
// memory for the large bodies is reserved (see largetask.go).
func (tas *Tasks) readTask(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, with TaskParts) (StoredTask, error) {
	var t taskReading
	var b db.Batch
	switch {
	case with.StateOnly:
		t.addQuery(&b, tas.tenant, id)
	case with.Approvals:
		tas.queryTaskWithApprovals(&b, id, &t)
	default:
		b.Query(func(r db.Row) (err error) { t, err = scanTask(r); return err },
			`SELECT `+taskColumns+taskFrom+` WHERE t.tenant = $1 AND t.id = $2`, tas.tenant, string(id))
	}
	var events []sizedEvent
	if kinds := with.eventKinds(); kinds != "" {
		b.Query(scanSizedEventsInto(id, &events), sizedEventsSQL(`kind IN (`+kinds+`)`), tas.tenant, string(id))
	}
	if err := tas.h.Do(ctx, &b); err != nil {
		return t.StoredTask, fmt.Errorf("read task %s: %w", id, err)
	}
	if t.ID == "" {
		return t.StoredTask, agentsvc.ErrNotFound
	}
	t.events = events
	total := t.trimHistory()
	one := []taskReading{t}
	if err := tas.loadMissing(ctx, memory, one, total); err != nil {
		return t.StoredTask, err
	}
	if with.isCacheable() {
		return tas.cache.saveTask(one[0].StoredTask, with, taskRowVersion{seq: t.Seq, status: t.statusSeq}.versionFor(with), int(total)), nil
	}
	return one[0].StoredTask, nil
}

// LoadState reads a task's row without the content of its status, so that it succeeds however large that is. It
// returns [agentsvc.ErrNotFound] if the tenant has no such task.
func (tas *Tasks) LoadState(ctx context.Context, id agentsvc.TaskID) (StoredTask, error) {
	var t StoredTask
	var b db.Batch
	t.addQuery(&b, tas.tenant, id)
	if err := tas.h.Do(ctx, &b); err != nil {
		return t, fmt.Errorf("read task %s: %w", id, err)
	}
	if t.ID == "" {
		return t, agentsvc.ErrNotFound
	}
	return t, nil
}

// FindSecondStatus returns the sequence of a task's first status after the one that opened it, 0 if it has none.
func (tas *Tasks) FindSecondStatus(ctx context.Context, id agentsvc.TaskID) (seq int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&seq) },
		`SELECT COALESCE(MIN(seq), 0) FROM event WHERE tenant = $1 AND task = $2 AND seq > 1 AND kind = '`+kindStatus+`'`, tas.tenant, string(id))
	if err := tas.h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("look when task %s began: %w", id, err)
	}
	return seq, nil
}

// loadCachedTask returns a task from the cache if its version in the database is the cached one; ok reports whether
// it is.
func (tas *Tasks) loadCachedTask(ctx context.Context, id agentsvc.TaskID, with TaskParts) (t StoredTask, ok bool, err error) {
	found := tas.cache.findTask(id, with)
	if found == nil {
		return t, false, nil
	}
	var b db.Batch
	var now taskRowVersion
	b.Query(now.scanRow, `SELECT `+versionColumns+` FROM task t WHERE t.tenant = $1 AND t.id = $2`, tas.tenant, string(id))
	if err := tas.h.Do(ctx, &b); err != nil {
		return t, false, fmt.Errorf("read task %s: %w", id, err)
	}
	return found.taskAt(now), found.version == now.versionFor(with), nil
}

// queryTaskWithApprovals adds to b one statement that reads a task, its open approvals and the start of its turn. Two
// statements could see two states on PostgreSQL (READ COMMITTED), and an approval row is deleted when it is decided.
func (tas *Tasks) queryTaskWithApprovals(b *db.Batch, id agentsvc.TaskID, to *taskReading) {
	b.Query(func(r db.Row) error {
		var first int64
		var seq, at *int64
		var body []byte
		t, err := scanTask(r, &first, &seq, &at, &body)
		if err != nil {
			return err
		}
		t.FirstSeq, t.Approvals, t.inlineBytes = first, to.Approvals, t.inlineBytes+to.inlineBytes+len(body)
		if seq != nil {
			a, err := decodeApproval(id, *seq, *at, body)
			if err != nil {
				return err
			}
			t.Approvals = append(t.Approvals, a)
		}
		*to = t
		return nil
	}, `SELECT `+taskColumns+`, COALESCE(r.first_seq, 0), o.seq, o.at, o.body`+taskFrom+`
			LEFT JOIN run r ON r.tenant = t.tenant AND r.task = t.id AND r.turn = t.turn
			LEFT JOIN (approval a JOIN event o ON o.tenant = a.tenant AND o.task = a.task AND o.seq = a.seq) ON a.tenant = t.tenant AND a.task = t.id
		WHERE t.tenant = $1 AND t.id = $2 ORDER BY o.seq`, tas.tenant, string(id))
}

// eventKinds returns the kinds of events that contain the parts, as a list of SQL literals.
func (p TaskParts) eventKinds() string {
	var kinds []string
	if p.History {
		kinds = append(kinds, "'"+kindStatus+"'", "'"+kindMessage+"'")
	}
	if p.Artifacts {
		kinds = append(kinds, "'"+kindArtifact+"'")
	}
	return strings.Join(kinds, ", ")
}

// foldEvents sets t's history and artifacts from events. Events after t.Seq were committed after t was read and are
// ignored.
func (t *StoredTask) foldEvents(evs []agentsvc.Event) {
	var all agentsvc.Task
	for _, ev := range evs {
		if ev.Seq <= t.Seq {
			all.ApplyEvent(ev)
		}
	}
	t.History, t.Artifacts = slices.Clip(all.History), slices.Clip(all.Artifacts)
}

// TaskPage is a page of tasks, newest first. HasMore reports that it ends before the filter's limit because of the
// tasks' size.
type TaskPage struct {
	Tasks   []StoredTask
	Total   int // on all pages; older tasks may be counted up to countTTL ago
	HasMore bool
	// Searched is the last task that the search for a text has looked at, if others follow it, else "". Total does not
	// depend on the text.
	Searched agentsvc.TaskID
}

// listConditions returns the conditions of f on the table task, named t, with their arguments: those that select the
// tasks of all pages, whatever their text.
func (tas *Tasks) listConditions(f TaskFilter) (where []string, args []any) {
	where, args = []string{"t.tenant = $1"}, []any{tas.tenant}
	// add adds a condition for a value that callers choose; column is always a constant.
	add := func(column, value string) {
		if value != "" {
			args = append(args, value)
			where = append(where, column+" = $"+strconv.Itoa(len(args)))
		}
	}
	if f.Agents != nil {
		one := []string{"1 = 0"}
		for _, a := range f.Agents {
			args = append(args, a)
			one = append(one, "t.agent = $"+strconv.Itoa(len(args))) // for IN, PostgreSQL would build an array for each row
		}
		where = append(where, "("+strings.Join(one, " OR ")+")")
	}
	add("t.context_id", string(f.Context))
	add("t.state", string(f.State))
	if f.Owner != nil {
		args = append(args, f.Owner.Subject, f.Owner.Issuer)
		where = append(where, fmt.Sprintf("t.owner_sub = $%d AND t.owner_iss = $%d", len(args)-1, len(args)))
	}
	if !f.After.IsZero() {
		args = append(args, f.After.UnixMicro())
		where = append(where, fmt.Sprintf("(SELECT s.at FROM event s WHERE s.tenant = t.tenant AND s.task = t.id AND s.seq = t.status_seq) > $%d", len(args)))
	}
	addBound := func(sign string, at time.Time) {
		if !at.IsZero() {
			args = append(args, firstTaskID(at))
			where = append(where, fmt.Sprintf("t.id %s (SELECT CAST($%d AS TEXT))", sign, len(args)))
		}
	}
	addBound(">=", f.Since)
	addBound("<", f.Until)
	return where, args
}

// List returns the page of tasks that f selects. The result may be shared with other callers and must not be modified.
// Large tasks are reserved from memory before they are read. Without parts it reads only the versions of the page's
// tasks first and takes the tasks from the cache where it can.
func (tas *Tasks) List(ctx context.Context, memory *capacity.MemoryReservation, f TaskFilter) (TaskPage, error) {
	where, args := tas.listConditions(f)
	var total int
	// The total is that of all pages, so it is counted without the bound of the previous page.
	counted, with := slices.Clip(where), slices.Clip(args)
	if f.Before != "" {
		args = append(args, string(f.Before))
		where = append(where, fmt.Sprintf("t.id < (SELECT CAST($%d AS TEXT))", len(args)))
	}
	var found foundTasks
	if f.Text != "" {
		var err error
		if found, err = tas.searchTasks(ctx, f, where, args); err != nil {
			return TaskPage{}, err
		}
		where, args = found.addCondition(where, args)
	}
	// Ids are UUIDv7, so their order is that of creation. Each index that serves the conditions ends with tenant and
	// id: the primary key, task_owner and task_context.
	rows := ` WHERE ` + strings.Join(where, " AND ") + ` ORDER BY t.id DESC LIMIT ` + strconv.Itoa(f.Limit)
	read := func(row func(db.Row) error, sql string) error {
		var b db.Batch
		tas.queryCount(&b, &total, f.State == "" && f.After.IsZero() && f.Since.IsZero() && f.Until.IsZero(), counted, with)
		b.Query(row, sql+rows, args...)
		if err := tas.h.Do(ctx, &b); err != nil {
			return fmt.Errorf("list tasks: %w", err)
		}
		return nil
	}
	if f.Parts == (TaskParts{}) {
		page := make([]taskRowVersion, 0, f.Limit)
		row := func(r db.Row) error {
			page = append(page, taskRowVersion{})
			return page[len(page)-1].scanRow(r)
		}
		if err := read(row, `SELECT `+versionColumns+` FROM task t`); err != nil {
			return TaskPage{}, err
		}
		if tasks, ok, err := tas.loadListedTasks(ctx, page); ok || err != nil {
			return TaskPage{Tasks: tasks, Total: total, Searched: found.continuesAfter()}, err
		}
	}
	var readings []taskReading
	err := read(func(r db.Row) error {
		t, err := scanTask(r)
		if err == nil {
			readings = append(readings, t)
		}
		return err
	}, `SELECT `+taskColumns+taskFrom)
	if err != nil {
		return TaskPage{}, err
	}
	return tas.fillPage(ctx, memory, TaskPage{Total: total, Searched: found.continuesAfter()}, readings, f.Parts)
}

// fillPage completes the tasks that were found and adds them to page, up to maxPageBytes but at least one.
func (tas *Tasks) fillPage(ctx context.Context, memory *capacity.MemoryReservation, page TaskPage, found []taskReading, with TaskParts) (TaskPage, error) {
	if err := tas.loadSizes(ctx, found, with); err != nil {
		return TaskPage{}, err
	}
	var total int64
	for i := range found {
		n := found[i].trimHistory()
		if i > 0 && total+n > maxPageBytes {
			found, page.HasMore = found[:i], true
			break
		}
		total += n
	}
	if err := tas.loadMissing(ctx, memory, found, total); err != nil {
		return TaskPage{}, err
	}
	page.Tasks = make([]StoredTask, len(found))
	for i, t := range found {
		page.Tasks[i] = t.StoredTask
		if with == (TaskParts{}) { // a task read with more parts has another cache key and is not cached here
			page.Tasks[i] = tas.cache.saveTask(t.StoredTask, with, t.statusSeq, t.inlineBytes+int(t.unreadBytes))
		}
	}
	return page, nil
}

// loadSizes reads the sizes of the parts of tasks, and the small parts themselves.
func (tas *Tasks) loadSizes(ctx context.Context, tasks []taskReading, with TaskParts) error {
	kinds := with.eventKinds()
	if kinds == "" && !with.Approvals && !with.Opening || len(tasks) == 0 {
		return nil
	}
	var b db.Batch
	if with.Opening {
		tas.queryOpenings(&b, tasks)
	}
	sized := sizedEventsSQL(`kind IN (` + kinds + `)`)
	for i := range tasks {
		t := &tasks[i]
		if with.Approvals && t.Status.State.IsInterrupted() {
			tas.querySmallApprovals(&b, t.ID, &t.approvalBytes, &t.Approvals)
		}
		if kinds != "" {
			b.Query(scanSizedEventsInto(t.ID, &t.events), sized, tas.tenant, string(t.ID))
		}
	}
	if err := tas.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("read events of listed tasks: %w", err)
	}
	return nil
}

// Cancel ends a task as cancelled if it is unchanged since seen, and raises its epoch, so that its worker can write
// nothing more. It returns [agentsvc.ErrTaskChanged] if the task has changed since.
func (tas *Tasks) Cancel(ctx context.Context, seen StoredTask, ev agentsvc.Event) error {
	g := &precondition{seen.Epoch + 1, ev.Seq}
	b := db.Batch{Key: string(seen.ID), StorageKind: db.StoresEnd}
	var n int64
	// The new epoch fences the task's worker, if one executes it: its next record finds another epoch.
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = 'cancelled', updated_at = $5
		WHERE tenant = $1 AND id = $2 AND epoch = $6 AND seq = $7 AND state IN ('submitted', 'working', 'input_required', 'auth_required')`,
		tas.tenant, string(seen.ID), g.epoch, g.seq, ev.At.UnixMicro(), seen.Epoch, seen.Seq)
	if err := insertEvents(&b, tas.tenant, seen.ID, []agentsvc.Event{ev}, g); err != nil {
		return err
	}
	tas.endRuns(&b, seen.ID, g)
	return tas.writeConditional(ctx, &b, &n, "cancel task "+string(seen.ID))
}

// addQuery adds to b the read of t's row, without the content of its status.
func (t *StoredTask) addQuery(b *db.Batch, tenant string, id agentsvc.TaskID) {
	b.Query(func(r db.Row) error {
		return r.Scan((*string)(&t.ID), &t.Agent, (*string)(&t.Context), &t.Owner.Issuer, &t.Owner.Subject, (*string)(&t.Status.State), &t.Epoch, &t.Seq, &t.Turn, &t.OpensContext)
	}, `SELECT id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, turn, opens_context FROM task WHERE tenant = $1 AND id = $2`, tenant, string(id))
}

// HasUnfinished reports whether the tenant has a task that has not ended.
func (tas *Tasks) HasUnfinished(ctx context.Context) (open bool, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&open) }, `SELECT EXISTS (SELECT 1 FROM task WHERE tenant = $1
		AND state IN ('submitted', 'working', 'input_required', 'auth_required'))`, tas.tenant)
	if err := tas.h.Do(ctx, &b); err != nil {
		return false, fmt.Errorf("look for unfinished tasks: %w", err)
	}
	return open, nil
}
