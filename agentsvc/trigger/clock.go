package trigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// Plan is the schedules of an app, at a generation of it; a suspended app has none.
type Plan struct {
	Generation int64
	Crons      map[string]*Cron // by agent
}

// Tick is one time at which an agent is to be started.
type Tick struct {
	Tenant db.ID
	Agent  string
	Spec   string // of the schedule as [Cron.String] writes it
	At     time.Time
}

// ErrRefused says that a tick may not start its agent. It is over with that; the next one may.
var ErrRefused = errors.New("the tick is refused")

// ErrOff says that an agent has no such schedule any more.
var ErrOff = errors.New("the agent has no such schedule")

// ClockOptions say what a [Clock] reads and starts. Plan and Start are required.
type ClockOptions struct {
	// Plan reads the schedules of an app. [tenancy.ErrNotFound] says that it is not there: to this process.
	Plan func(ctx context.Context, app db.ID) (Plan, error)
	// Start starts an agent under the tick's key, so that doing it again finds the same task. After an [ErrRefused] the tick
	// is over, after any other error it is tried again.
	Start func(ctx context.Context, t Tick) (agentsvc.TaskID, error)
	Log   *slog.Logger

	Look time.Duration // between looks for ticks; 1 second
	Read time.Duration // between looks for apps that no signal told of; 10 seconds
	Hold time.Duration // how long a tick is its taker's; 15 seconds
	Some int           // ticks that are started at a time; 32
}

// Clock starts agents by their schedules, those of every app of the database. In every process there may be one.
type Clock struct {
	table table
	o     ClockOptions
	wake  chan struct{}
	own   Plan // of the default app, which is this process's

	starts sync.WaitGroup
	slots  chan struct{}
	mu     sync.Mutex
	atWork map[db.ID]int // ticks of an app that are being started
}

// someTicks is how many ticks of an app are started at a time, so that one that is slow to load leaves room for others.
const someTicks = 4

// NewClock returns a clock over the schedules of d.
func NewClock(d *db.DB, o ClockOptions) *Clock {
	o.Look, o.Read = cmp.Or(o.Look, time.Second), cmp.Or(o.Read, 10*time.Second)
	o.Hold, o.Some = cmp.Or(o.Hold, 15*time.Second), cmp.Or(o.Some, 32)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Clock{table: table{d}, o: o, wake: make(chan struct{}, 1), slots: make(chan struct{}, o.Some), atWork: map[db.ID]int{}}
}

// Wake has the clock look for changed apps soon.
func (c *Clock) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run lives until ctx ends.
func (c *Clock) Run(ctx context.Context) error {
	look, read := time.NewTicker(c.o.Look), time.NewTicker(c.o.Read)
	defer look.Stop()
	defer read.Stop()
	defer c.starts.Wait()
	healthy := true
	for do := c.read; ; {
		err := do(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if (err == nil) != healthy {
			if healthy = err == nil; healthy {
				c.o.Log.InfoContext(ctx, "schedules are kept again")
			} else {
				c.o.Log.WarnContext(ctx, "schedules are not kept at present", "error", err)
			}
		}
		select {
		case <-look.C:
			do = c.tick
		case <-read.C:
			do = c.read
		case <-c.wake:
			do = c.read
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read brings the table up to date with the apps that have changed.
func (c *Clock) read(ctx context.Context) error {
	own, err := c.o.Plan(ctx, tenancy.DefaultID)
	switch {
	case errors.Is(err, tenancy.ErrNotFound):
		c.own = Plan{}
	case err != nil:
		return fmt.Errorf("read the schedules of the app %s: %w", tenancy.DefaultName, err)
	case own.Generation != c.own.Generation:
		if err := c.table.put(ctx, tenancy.DefaultID, own.Generation, own.Crons); err != nil {
			return err
		}
		c.own = own
	}
	ids, err := c.table.changed(ctx)
	if len(ids) == someApps {
		c.Wake()
	}
	for _, id := range ids {
		p, wrong := c.o.Plan(ctx, id)
		switch {
		case errors.Is(wrong, tenancy.ErrNotFound):
			continue // deleted since
		case wrong == nil:
			wrong = c.table.put(ctx, id, p.Generation, p.Crons)
		}
		err = errors.Join(err, wrong)
	}
	return err
}

// tick has what is due started, as far as there is room, and waits for none of it.
func (c *Clock) tick(ctx context.Context) error {
	due, err := c.table.due(ctx)
	if err != nil {
		return err
	}
	for _, d := range due {
		if own := c.own.Crons[d.Agent]; d.Tenant == tenancy.DefaultID && (own == nil || own.String() != d.Spec) {
			continue // of another process's file
		}
		if !c.begin(d.Tenant, 1) {
			continue
		}
		select {
		case c.slots <- struct{}{}:
		case <-time.After(c.o.Look):
			c.begin(d.Tenant, -1)
			return nil // they are due still
		}
		c.starts.Go(func() {
			if err := c.start(ctx, d); err != nil && ctx.Err() == nil {
				c.o.Log.WarnContext(ctx, "a tick could not be started and is tried again", "app", d.Tenant, "agent", d.Agent, "error", err)
			}
			<-c.slots
			c.begin(d.Tenant, -1)
		})
	}
	return nil
}

// begin counts a tick of an app that is being started, or with -1 no longer is, and reports whether there was room for it.
func (c *Clock) begin(app db.ID, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && c.atWork[app] == someTicks {
		return false
	}
	if c.atWork[app] += n; c.atWork[app] == 0 {
		delete(c.atWork, app)
	}
	return true
}

// start starts one agent, if nobody else does. Of several ticks that were missed it is started for the last.
func (c *Clock) start(ctx context.Context, d Due) error {
	cron, err := ParseSpec(d.Spec)
	if err != nil {
		return err
	}
	if mine, err := c.table.take(ctx, d, c.o.Hold); err != nil || !mine {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Hold*2/3)
	defer cancel()
	t := Tick{d.Tenant, d.Agent, d.Spec, cron.Latest(d.At, d.Now)}
	o := Outcome{At: t.At}
	o.Task, err = c.o.Start(ctx, t)
	refused := errors.Is(err, ErrRefused)
	switch {
	case errors.Is(err, ErrOff), errors.Is(err, tenancy.ErrNotFound), errors.Is(err, tenancy.ErrSuspended):
		return nil // the table will know soon
	case refused:
		o.Error = err.Error()
		c.o.Log.WarnContext(ctx, "a schedule may not start its agent", "app", t.Tenant, "agent", t.Agent, "scheduled_at", t.At, "error", err)
	case err != nil:
		c.o.Log.WarnContext(ctx, "a schedule could not start its agent and tries again", "app", t.Tenant, "agent", t.Agent, "scheduled_at", t.At, "error", err)
		return nil
	}
	return c.table.settle(ctx, d, o, cron.Next(d.Now))
}
