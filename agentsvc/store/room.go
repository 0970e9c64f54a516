package store

import (
	"context"
	"errors"
	"strconv"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// ErrNoRoom says that the app has as many runs at work as it may: a further one has to wait for its turn.
var ErrNoRoom = errors.New("the app has as many tasks at work as it may")

// unbounded stands for no limit.
const unbounded = 1 << 62

// bounded reports whether the run counts against a limit the moment it is written.
func (r Run) bounded() bool { return r.Limit > 0 && r.Worker != "" }

func (r Run) bound() int64 {
	if r.bounded() {
		return r.Limit
	}
	return unbounded
}

// hasRoom says in SQL that the tenant $1 may have another run at work, up to the bound that is parameter p.
func hasRoom(p int) string {
	n := strconv.Itoa(p)
	return `(CAST($` + n + ` AS BIGINT) = ` + strconv.Itoa(unbounded) + ` OR (SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1) < CAST($` + n + ` AS BIGINT))`
}

// crowd is what a batch counted of the runs at work where they are bounded.
type crowd struct {
	n, most int64
}

// counts adds to b that the runs at work are counted, by one at a time, if run is bounded.
func (s *Store) counts(b *db.Batch, run Run) *crowd {
	c := &crowd{most: run.bound()}
	if run.bounded() {
		lockApp(b, s.h, run.Tenant)
		b.Query(func(r db.Row) error { return r.Scan(&c.n) }, `SELECT COUNT(*) FROM run WHERE state = 'running' AND tenant = $1`, s.tenant)
	}
	return c
}

// or says of a step that touched nothing whether that was for want of room.
func (c *crowd) or(err error) error {
	if errors.Is(err, agentsvc.ErrLost) && c.n >= c.most {
		return ErrNoRoom
	}
	return err
}

// acceptWithin is Accept of a bounded run.
func (s *Store) acceptWithin(ctx context.Context, run Run, evs []agentsvc.Event, sent *Sent) error {
	status, g := lastStatus(evs), &guard{run.Epoch, run.Seq}
	b := db.Batch{Key: string(run.Task)}
	var n int64
	lockApp(&b, s.h, run.Tenant)
	b.Exec(&n, `INSERT INTO task (tenant, id, agent, context_id, owner_iss, owner_sub, state, epoch, seq, status_seq, turn, created_at, updated_at)
		SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), CAST($7 AS TEXT),
			CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS BIGINT), CAST($12 AS BIGINT), CAST($12 AS BIGINT) WHERE `+hasRoom(13),
		s.tenant, string(run.Task), run.Agent, string(run.Context), run.Owner.Issuer, run.Owner.Subject, string(status.Status.State),
		run.Epoch, run.Seq, status.Seq, run.Turn, evs[0].At.UnixMicro(), run.bound())
	if err := insertEvents(&b, s.tenant, run.Task, evs, g); err != nil {
		return err
	}
	s.insertRun(&b, run, g)
	if sent != nil {
		s.insertSent(&b, run.Owner, run, *sent, g)
	}
	err := s.accepted(run, sent, s.h.Write(ctx, &b))
	if err == nil && n == 0 {
		return ErrNoRoom
	}
	return err
}
