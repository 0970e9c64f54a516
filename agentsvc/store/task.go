package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// TaskParts says which parts of a task to read beside its status.
type TaskParts struct {
	History   bool
	Artifacts bool
	Approvals bool // that are open
	StateOnly bool // without all of these, and of the status nothing but its state
}

// StoredTask is a task as the database has it, with what its writers go by.
type StoredTask struct {
	agentsvc.Task
	Epoch        int64
	Turn         int64
	FirstSeq     int64         // of the event that opened the turn; read with the approvals
	EncodedCache *EncodedCache // of the task as it stands, where it is read without approvals
}

// TaskFilter chooses tasks. Zero fields choose all; Agents that are empty but not nil choose none. Before is the id of the last task of the page before.
type TaskFilter struct {
	Agents  []string
	Context agentsvc.ContextID
	Owner   *agentsvc.Owner
	State   agentsvc.State
	After   time.Time // of their status; zero = any
	Before  agentsvc.TaskID
	Limit   int
	Parts   TaskParts
}

var taskColumns = `t.id, t.agent, t.context_id, t.owner_iss, t.owner_sub, t.state, t.epoch, t.seq, t.turn, t.created_at, e.seq, e.at, octet_length(e.body), ` +
	smallBodySQL("e.body", "octet_length(e.body)")

const taskFrom = ` FROM task t JOIN event e ON e.tenant = t.tenant AND e.task = t.id AND e.seq = t.status_seq`

// scanTask reads taskColumns, and into more what follows them. Of a status that is large it reads the state alone.
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

// LoadTask reads a task as it is at one moment. It returns [agentsvc.ErrNotFound] if the tenant has none of that id. What it
// returns may be another caller's as well, and is not to be changed.
func (s *Store) LoadTask(ctx context.Context, id agentsvc.TaskID, with TaskParts) (StoredTask, error) {
	if with.isCacheable() {
		if t, ok, err := s.loadCachedTask(ctx, id, with); ok || err != nil {
			return t, err
		}
	}
	return s.readTask(ctx, id, with)
}

func (s *Store) readTask(ctx context.Context, id agentsvc.TaskID, with TaskParts) (StoredTask, error) {
	var t taskReading
	var b db.Batch
	switch {
	case with.StateOnly:
		t.addQuery(&b, s.tenant, id)
	case with.Approvals:
		s.queryTaskWithApprovals(&b, id, &t)
	default:
		b.Query(func(r db.Row) (err error) { t, err = scanTask(r); return err },
			`SELECT `+taskColumns+taskFrom+` WHERE t.tenant = $1 AND t.id = $2`, s.tenant, string(id))
	}
	var events []sizedEvent
	if kinds := with.eventKinds(); kinds != "" {
		b.Query(scanSizedEventsInto(id, &events), sizedEventsSQL(`kind IN (`+kinds+`)`), s.tenant, string(id))
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return t.StoredTask, fmt.Errorf("read task %s: %w", id, err)
	}
	if t.ID == "" {
		return t.StoredTask, agentsvc.ErrNotFound
	}
	t.events = events
	total := t.trimHistory()
	one := []taskReading{t}
	if err := s.loadMissing(ctx, one, total); err != nil {
		return t.StoredTask, err
	}
	if with.isCacheable() {
		return s.taskCache.saveTask(one[0].StoredTask, with, taskRowVersion{seq: t.Seq, status: t.statusSeq}.versionFor(with), int(total)), nil
	}
	return one[0].StoredTask, nil
}

// FindSecondStatus returns the sequence of the first status of a task behind the one that opened it, 0 where it has none.
func (s *Store) FindSecondStatus(ctx context.Context, id agentsvc.TaskID) (seq int64, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&seq) },
		`SELECT COALESCE(MIN(seq), 0) FROM event WHERE tenant = $1 AND task = $2 AND seq > 1 AND kind = '`+kindStatus+`'`, s.tenant, string(id))
	if err := s.h.Do(ctx, &b); err != nil {
		return 0, fmt.Errorf("look when task %s began: %w", id, err)
	}
	return seq, nil
}

// loadCachedTask returns a task that was read before, if it still stands as it did.
func (s *Store) loadCachedTask(ctx context.Context, id agentsvc.TaskID, with TaskParts) (t StoredTask, ok bool, err error) {
	found := s.taskCache.findTask(id, with)
	if found == nil {
		return t, false, nil
	}
	var b db.Batch
	var now taskRowVersion
	b.Query(now.scanRow, `SELECT `+versionColumns+` FROM task t WHERE t.tenant = $1 AND t.id = $2`, s.tenant, string(id))
	if err := s.h.Do(ctx, &b); err != nil {
		return t, false, fmt.Errorf("read task %s: %w", id, err)
	}
	return found.taskAt(now), found.version == now.versionFor(with), nil
}

// queryTaskWithApprovals reads a task with its open approvals and where its turn began, in one statement: an approval goes when it is
// decided, and a later look would miss what the task still tells of.
func (s *Store) queryTaskWithApprovals(b *db.Batch, id agentsvc.TaskID, to *taskReading) {
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
		WHERE t.tenant = $1 AND t.id = $2 ORDER BY o.seq`, s.tenant, string(id))
}

// eventKinds lists the events that hold what is asked for, as SQL literals.
func (w TaskParts) eventKinds() string {
	var kinds []string
	if w.History {
		kinds = append(kinds, "'"+kindStatus+"'", "'"+kindMessage+"'")
	}
	if w.Artifacts {
		kinds = append(kinds, "'"+kindArtifact+"'")
	}
	return strings.Join(kinds, ", ")
}

// foldEvents fills in what events tell beyond the status. Those that came after t was read are left out: what comes before does
// not change any more.
func (t *StoredTask) foldEvents(evs []agentsvc.Event) {
	var all agentsvc.Task
	for _, ev := range evs {
		if ev.Seq <= t.Seq {
			all.ApplyEvent(ev)
		}
	}
	t.History, t.Artifacts = slices.Clip(all.History), slices.Clip(all.Artifacts)
}

// TaskPage is a page of tasks, newest first. More says that it ends before the filter's limit because of the size of its tasks.
type TaskPage struct {
	Tasks   []StoredTask
	Total   int // on all pages
	HasMore bool
}

// ListTasks lists the tasks that f chooses. What it returns may be another caller's as well, and is not to be changed.
func (s *Store) ListTasks(ctx context.Context, f TaskFilter) (TaskPage, error) {
	var total int
	where := []string{"t.tenant = $1"}
	args := []any{s.tenant}
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
			one = append(one, "t.agent = $"+strconv.Itoa(len(args))) // of IN, PostgreSQL would make an array anew for each row
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
	counted, with := slices.Clip(where), slices.Clip(args)
	if f.Before != "" {
		args = append(args, string(f.Before))
		where = append(where, fmt.Sprintf("t.id < (SELECT CAST($%d AS TEXT))", len(args)))
	}
	// With the bound in the open, or the limit in an argument, PostgreSQL would plan each page anew.
	rows := ` WHERE ` + strings.Join(where, " AND ") + ` ORDER BY t.id DESC LIMIT ` + strconv.Itoa(f.Limit)
	read := func(row func(db.Row) error, sql string) error {
		var b db.Batch
		s.queryCount(&b, &total, f.State == "" && f.After.IsZero(), counted, with)
		b.Query(row, sql+rows, args...)
		if err := s.h.Do(ctx, &b); err != nil {
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
		if tasks, ok, err := s.loadListedTasks(ctx, page); ok || err != nil {
			return TaskPage{Tasks: tasks, Total: total}, err
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
	return s.fillPage(ctx, TaskPage{Total: total}, readings, f.Parts)
}

// fillPage adds to page the tasks that were found and as many bytes as a page may have, with their histories, artifacts and approvals.
func (s *Store) fillPage(ctx context.Context, page TaskPage, found []taskReading, with TaskParts) (TaskPage, error) {
	if err := s.loadSizes(ctx, found, with); err != nil {
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
	if err := s.loadMissing(ctx, found, total); err != nil {
		return TaskPage{}, err
	}
	page.Tasks = make([]StoredTask, len(found))
	for i, t := range found {
		page.Tasks[i] = t.StoredTask
		if with == (TaskParts{}) { // what is read with more is not what is kept
			page.Tasks[i] = s.taskCache.saveTask(t.StoredTask, with, t.statusSeq, t.inlineBytes+int(t.unreadBytes))
		}
	}
	return page, nil
}

// loadSizes reads how large the history, artifacts and approvals of tasks are, and those that are small.
func (s *Store) loadSizes(ctx context.Context, tasks []taskReading, with TaskParts) error {
	kinds := with.eventKinds()
	if kinds == "" && !with.Approvals || len(tasks) == 0 {
		return nil
	}
	var b db.Batch
	sized := sizedEventsSQL(`kind IN (` + kinds + `)`)
	for i := range tasks {
		t := &tasks[i]
		if with.Approvals && t.Status.State.IsInterrupted() {
			s.querySmallApprovals(&b, t.ID, &t.approvalBytes, &t.Approvals)
		}
		if kinds != "" {
			b.Query(scanSizedEventsInto(t.ID, &t.events), sized, s.tenant, string(t.ID))
		}
	}
	if err := s.h.Do(ctx, &b); err != nil {
		return fmt.Errorf("read events of listed tasks: %w", err)
	}
	return nil
}

// CancelTask ends the task seen as cancelled and takes its lease. It returns [agentsvc.ErrLeaseLost] if the task has moved on.
func (s *Store) CancelTask(ctx context.Context, seen StoredTask, ev agentsvc.Event) error {
	g := &precondition{seen.Epoch + 1, ev.Seq}
	b := db.Batch{Key: string(seen.ID), StorageKind: db.StoresEnd}
	var n int64
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = $4, state = 'cancelled', updated_at = $5
		WHERE tenant = $1 AND id = $2 AND epoch = $6 AND seq = $7 AND state IN ('submitted', 'working', 'input_required', 'auth_required')`,
		s.tenant, string(seen.ID), g.epoch, g.seq, ev.At.UnixMicro(), seen.Epoch, seen.Seq)
	if err := insertEvents(&b, s.tenant, seen.ID, []agentsvc.Event{ev}, g); err != nil {
		return err
	}
	s.endRuns(&b, seen.ID, g)
	return s.writeConditional(ctx, &b, &n, "cancel task "+string(seen.ID))
}

// endRuns adds to b that a task which has ended has no more runs and waits for nobody, if the guard holds.
func (s *Store) endRuns(b *db.Batch, id agentsvc.TaskID, g *precondition) {
	b.Exec(nil, `UPDATE run SET state = 'completed', worker = '' WHERE tenant = $1 AND task = $2 AND state IN ('waiting', 'pending', 'running', 'input_required')
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4)`,
		s.tenant, string(id), g.epoch, g.seq)
	b.Exec(nil, `DELETE FROM approval WHERE tenant = $1 AND task = $2
		AND EXISTS (SELECT 1 FROM task WHERE tenant = $1 AND id = $2 AND epoch = $3 AND seq = $4)`,
		s.tenant, string(id), g.epoch, g.seq)
}

// AcquireTaskLease takes the lease of a claimed run's task: it fills in what the run does not know and, where the task was only
// submitted, appends the fact that it is being worked on. It returns [agentsvc.ErrLeaseLost] if the task no longer
// waits for this run or the run is no longer leased to its worker, and [ErrTaskInterrupted] if the task waits for somebody else.
func (s *Store) AcquireTaskLease(ctx context.Context, run *Run) (evs []agentsvc.Event, err error) {
	for range maxAttempts {
		// Whoever had the lease before may still write until it is taken from them.
		if evs, err = s.tryAcquireTaskLease(ctx, run); !errors.Is(err, errTaskChanged) {
			return evs, err
		}
	}
	return nil, err
}

// errTaskChanged says that the task moved on between the look and the step.
var errTaskChanged = errors.New("the task moved on")

func (s *Store) tryAcquireTaskLease(ctx context.Context, run *Run) ([]agentsvc.Event, error) {
	seen, found, leased, err := s.loadLeaseState(ctx, run)
	if err != nil {
		return nil, err
	}
	switch {
	case !leased:
		return nil, agentsvc.ErrLeaseLost
	case seen.Turn == run.Turn && seen.Status.State.IsInterrupted():
		return nil, ErrTaskInterrupted
	case seen.Turn != run.Turn || seen.Status.State.IsTerminal():
		return nil, agentsvc.ErrLeaseLost
	}
	run.Agent, run.Context, run.Owner = seen.Agent, seen.Context, seen.Owner
	run.Epoch, run.Seq = seen.Epoch+1, seen.Seq
	run.IsNewContext = run.Turn == 1 && run.Context == ContextIDForTask(run.Task)
	var evs []agentsvc.Event
	if seen.Status.State == agentsvc.Submitted {
		run.WasInterrupted = false // it stopped before anything began
		run.Seq++
		now := time.Now().UTC().Truncate(time.Microsecond)
		evs = []agentsvc.Event{{Task: run.Task, Seq: run.Seq, At: now, Status: &agentsvc.Status{State: agentsvc.Working, At: now}}}
	}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresEnd}
	var n int64
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = CASE WHEN state = 'submitted' THEN $4 ELSE status_seq END, state = 'working'
		WHERE tenant = $1 AND id = $2 AND epoch = $5 AND seq = $6 AND state IN ('submitted', 'working')
			AND EXISTS (`+leasedRunSQL(7)+`)`,
		s.tenant, string(run.Task), run.Epoch, run.Seq, seen.Epoch, seen.Seq, run.Turn, run.Worker, run.Attempts)
	if err := insertEvents(&b, s.tenant, run.Task, evs, &precondition{run.Epoch, run.Seq}); err != nil {
		return nil, err
	}
	if err := s.writeConditional(ctx, &b, &n, "begin task "+string(run.Task)); errors.Is(err, agentsvc.ErrLeaseLost) {
		return nil, errTaskChanged
	} else if err != nil {
		return nil, err
	}
	if run.TurnEvents = nil; !found.isTooLarge {
		run.TurnEvents = slices.Concat(found.events, evs)
	}
	return evs, nil
}

// leasedRunSQL selects the run of the task $2 of the tenant $1 that is leased: its turn, its worker and which attempt it is are
// the parameters from the number turn on.
func leasedRunSQL(turn int) string {
	return fmt.Sprintf(`SELECT 1 FROM run WHERE tenant = $1 AND task = $2 AND turn = $%d AND worker = $%d AND attempts = $%d AND state = 'running'`, turn, turn+1, turn+2)
}

// loadLeaseState reads where run's task stands, the facts of run's turn so far unless they are large, which hold if it still stands there when its
// lease is taken, and whether run is leased to its worker.
func (s *Store) loadLeaseState(ctx context.Context, run *Run) (t StoredTask, found eventReading, leased bool, err error) {
	var b db.Batch
	t.addQuery(&b, s.tenant, run.Task)
	b.Query(func(db.Row) error { leased = true; return nil }, leasedRunSQL(3), s.tenant, string(run.Task), run.Turn, run.Worker, run.Attempts)
	found.addQuery(&b, s.tenant, run.Task, run.FirstSeq-1, maxJournal)
	if err := s.h.Do(ctx, &b); err != nil {
		return t, found, false, fmt.Errorf("read task %s: %w", run.Task, err)
	}
	if t.ID == "" {
		return t, found, false, agentsvc.ErrNotFound
	}
	return t, found, leased, nil
}

// addQuery adds to b that t is read, but for what its status says.
func (t *StoredTask) addQuery(b *db.Batch, tenant string, id agentsvc.TaskID) {
	b.Query(func(r db.Row) error {
		return r.Scan((*string)(&t.ID), &t.Agent, (*string)(&t.Context), &t.Owner.Issuer, &t.Owner.Subject, (*string)(&t.Status.State), &t.Epoch, &t.Seq, &t.Turn)
	}, `SELECT id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, turn FROM task WHERE tenant = $1 AND id = $2`, tenant, string(id))
}
