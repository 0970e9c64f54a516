package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/capacity"
	"stoa/tenancy/db"
)

// Runs are the turns of a tenant's tasks as their workers execute them: lease, journal and records. What a
// worker writes is fenced by the epoch of its lease.
type Runs struct {
	*tenantRows
	events   *Events
	sessions *Sessions
}

// BeginRun begins a run that [RunQueue.ClaimRuns] has leased: it raises the task's epoch, fills in what the claim does
// not know of run and, where the task was submitted, appends the working status. Where the process of the previous
// attempt stopped ([Run].WasCutOff), it appends that this attempt continues it. A run that was accepted in a slot of
// this process needs none of it: its task was written at the epoch of the lease. It returns [agentsvc.ErrLeaseLost] if
// the task does not wait for this run any more or the run is not leased to its worker any more, and
// [ErrTaskInterrupted] if the task waits for a human.
func (s *Runs) BeginRun(ctx context.Context, run *Run) (evs []agentsvc.Event, err error) {
	for range maxAttempts {
		evs, err = s.tryBeginRun(ctx, run)
		if !errors.Is(err, agentsvc.ErrTaskChanged) && !errors.Is(err, ErrTaskInterrupted) {
			return evs, err
		}
		// The condition of the write includes the run's lease, so that only what failed needs this query.
		leased, leaseErr := s.isLeased(ctx, run)
		switch {
		case leaseErr != nil:
			return nil, leaseErr
		case !leased:
			return nil, agentsvc.ErrLeaseLost
		case errors.Is(err, ErrTaskInterrupted):
			return nil, err
		}
		// Unless a rescue has raised the epoch, an earlier worker may write until it is raised here, so the state that
		// was read can be outdated.
	}
	return nil, err
}

// cutOffReason is the reason of an attempt that follows one whose process stopped.
const cutOffReason = "The process that executed the task stopped."

// tryBeginRun is one attempt of BeginRun. It returns [agentsvc.ErrTaskChanged] if the task changed between the
// read and the conditional write.
func (s *Runs) tryBeginRun(ctx context.Context, run *Run) ([]agentsvc.Event, error) {
	seen, found, err := s.loadLeaseState(ctx, run)
	if err != nil {
		return nil, err
	}
	switch {
	case seen.Turn == run.Turn && seen.Status.State.IsInterrupted():
		return nil, ErrTaskInterrupted
	case seen.Turn != run.Turn || seen.Status.State.IsTerminal():
		return nil, agentsvc.ErrLeaseLost
	}
	run.Agent, run.Context, run.Owner = seen.Agent, seen.Context, seen.Owner
	run.Epoch, run.Seq = seen.Epoch+1, seen.Seq
	run.IsNewContext = run.Turn == 1 && seen.OpensContext
	var evs []agentsvc.Event
	now := time.Now().UTC().Truncate(time.Microsecond)
	switch {
	case seen.Status.State == agentsvc.Submitted:
		run.WasCutOff = false // its process stopped before the task began
		run.Seq++
		evs = []agentsvc.Event{{Task: run.Task, Seq: run.Seq, At: now, Status: &agentsvc.Status{State: agentsvc.Working, At: now}}}
	case run.WasCutOff:
		run.Seq++
		evs = []agentsvc.Event{{Task: run.Task, Seq: run.Seq, At: now, Attempt: &agentsvc.Attempt{Number: run.Attempts, Reason: cutOffReason, CutOff: true}}}
	}
	b := db.Batch{Key: string(run.Task), StorageKind: db.StoresEnd}
	var n int64
	// Conditional on the run's lease as well: a run that was rescued between claim and here must not begin.
	b.Exec(&n, `UPDATE task SET epoch = $3, seq = $4, status_seq = CASE WHEN state = 'submitted' THEN $4 ELSE status_seq END, state = 'working'
		WHERE tenant = $1 AND id = $2 AND epoch = $5 AND seq = $6 AND state IN ('submitted', 'working')
			AND EXISTS (`+leasedRunSQL(7)+`)`,
		s.tenant, string(run.Task), run.Epoch, run.Seq, seen.Epoch, seen.Seq, run.Turn, run.Worker, run.Attempts)
	if err := insertEvents(&b, s.tenant, run.Task, evs, &precondition{run.Epoch, run.Seq}); err != nil {
		return nil, err
	}
	if err := s.writeConditional(ctx, &b, &n, "begin task "+string(run.Task)); err != nil {
		return nil, err
	}
	// The condition held, so the events that were read are all there are.
	if run.TurnEvents = nil; !found.isTooLarge {
		run.TurnEvents = slices.Concat(found.events, evs)
	}
	return evs, nil
}

// loadLeaseState reads the state of run's task and, unless they are large, the facts of the turn.
func (s *Runs) loadLeaseState(ctx context.Context, run *Run) (t StoredTask, found eventReading, err error) {
	var b db.Batch
	t.addQuery(&b, s.tenant, run.Task)
	found.addQuery(&b, s.tenant, run.Task, run.FirstSeq-1, maxJournal)
	if err := s.h.Do(ctx, &b); err != nil {
		return t, found, fmt.Errorf("read task %s: %w", run.Task, err)
	}
	if t.ID == "" {
		return t, found, agentsvc.ErrNotFound
	}
	return t, found, nil
}

// Unclaim has a claimed run wait for humans again, as if it had not been claimed.
func (s *Runs) Unclaim(ctx context.Context, run Run) error { return s.unclaimRun(ctx, run) }

// LoadJournal returns the facts of a task from the sequence first on: those of a turn begin with the message that opened
// it. Their bytes are reserved from memory.
func (s *Runs) LoadJournal(ctx context.Context, memory *capacity.MemoryReservation, id agentsvc.TaskID, first int64) ([]agentsvc.Event, error) {
	return s.events.Load(ctx, memory, id, first-1, maxJournal)
}

// maxJournal bounds the facts that are read of one turn.
const maxJournal = 100_000

// LoadLimitReservation returns the note of what a turn has reserved from the tenant's limits. It returns "" where nothing
// was reserved, and where a usage event is on the log: then the worker of the turn has settled it, and releasing it
// again would be wrong.
func (s *Runs) LoadLimitReservation(ctx context.Context, id agentsvc.TaskID, turn int64) (note string, err error) {
	var b db.Batch
	b.Query(func(r db.Row) error { return r.Scan(&note) }, `SELECT r.reserved FROM run r WHERE r.tenant = $1 AND r.task = $2 AND r.turn = $3
		AND NOT EXISTS (SELECT 1 FROM event e WHERE e.tenant = r.tenant AND e.task = r.task AND e.seq >= r.first_seq AND e.kind = 'usage')`,
		s.tenant, string(id), turn)
	if err := s.h.Do(ctx, &b); err != nil {
		return "", fmt.Errorf("read the reservation of turn %d of task %s: %w", turn, id, err)
	}
	return note, nil
}
