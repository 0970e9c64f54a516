// Package queue brings accepted runs to the workers of a process. A [Pool] holds these workers. There are two ways
// in:
//
//   - A run whose caller waits (Awaited) is accepted in a slot of this process. The task service calls
//     [Pool.AcquireSlot] before it writes the run, writes the run with this process as its worker, so that it is
//     created under a lease, and calls [Pool.StartRun].
//   - Every other run is written as pending. The claim loop of some process leases it from the database (claimRuns),
//     in turns over the tenants (tenantRing), so that a tenant with many runs does not delay a tenant with few.
//
// A Pool has these parts. Each guards its own state; none takes another one's lock while it holds its own.
//
//   - executor starts runs on goroutines, waits for them and stops them. A run executes only in one of the slots,
//     which bound the runs of a process: live slots for awaited runs, queue slots for claimed runs, and background
//     slots for runs whose caller has disconnected. Each limits what one tenant may occupy (slotPool).
//   - activeRuns are the runs that execute now, by task; unfinishedRuns those that recorded no end.
//   - claimer is the claim loop. awaitedApps are the tenants whose awaited runs found no live slot, claimSignal makes
//     the loop read the queue, and lendSlot helps a tenant when all workers stay busy.
//   - heartbeater is the heartbeat loop, and watcher the loop that finds what others wrote about the runs here.
//
// A run is leased to a process, but its lease has no time of its own: the worker row of the process has a heartbeat, by
// the database's clock. The heartbeater renews it every third of [Options].StaleAfter. A process whose heartbeat is
// older than StaleAfter counts as dead; any other process then makes its runs pending again and raises the epochs of
// their tasks, so that the dead process's late writes are refused.
//
// A worker that has lost its lease is stopped in four ways: its writes fail, because the store compares the task's
// epoch; the watcher cancels the context of runs whose lease is lost (stopLost); renewBeforeExpiry cancels all
// runs when the renewal is late; and [agentsvc.LeaseCheck.Check] refuses a call with an external effect until the lease is
// confirmed (confirmHeartbeat).
package queue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/fleet"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Options configure a [Pool]. A zero field takes the default that its comment names.
type Options struct {
	// Worker identifies this process in leases: a new [fleet.NewProcessID].
	Worker string
	// Workers is how many runs claimed from the queue execute at a time: 4. One more slot exists for a tenant that
	// has none of them.
	Workers int
	// MaxInflight is how many awaited runs execute at a time: 512. The background slots are as many.
	MaxInflight int
	// AppInflight bounds the awaited runs of one tenant; 0 = it may have as many as it leaves free.
	AppInflight int
	// LendAfter is how long all workers may stay busy before a tenant that has no run here gets a background slot: 5
	// s.
	LendAfter time.Duration
	// StaleAfter is the age of the last heartbeat at which a worker counts as dead: 5 min.
	StaleAfter time.Duration
	// Retry is when runs that recorded no end are tried again.
	Retry Retry
	// GiveUp ends the task of a run that has used its attempts without recording an end, for the given reason. It
	// returns [agentsvc.ErrLeaseLost] where the task no longer waits for the run. nil = such runs are retried without
	// limit.
	GiveUp func(ctx context.Context, run store.Run, reason string) error
	// ConfigHash returns the hash of this process's configuration file, "" without one. Processes that share a
	// database compare theirs; a difference is logged.
	ConfigHash func() string
	// AcceptOnly makes this process execute no runs: what it accepts is left to other processes.
	AcceptOnly bool
	// Bus signals the pools of other processes; nil = they find new runs by polling.
	Bus *signal.Bus
	// Calls finds the tool calls in progress in this process; nil = no call can be cancelled.
	Calls Calls
	Log   *slog.Logger
}

// Calls is the registry of tool calls in progress in this process. task.Hub implements it.
type Calls interface {
	// HasCall reports whether the call is in progress here.
	HasCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID) bool
	// StopCall cancels a call and reports whether it was in progress here.
	StopCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID, reason string) bool
}

func (o Options) withDefaults() Options {
	if o.Worker == "" {
		o.Worker = fleet.NewProcessID()
	}
	if o.Workers == 0 {
		o.Workers = 4
	}
	if o.MaxInflight == 0 {
		o.MaxInflight = 512
	}
	if o.LendAfter == 0 {
		o.LendAfter = 5 * time.Second
	}
	if o.StaleAfter == 0 {
		o.StaleAfter = 5 * time.Minute
	}
	if o.ConfigHash == nil {
		o.ConfigHash = func() string { return "" }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// liveRule returns the rule that bounds one tenant's share of the live slots.
func (o Options) liveRule() shareRule {
	if o.AppInflight > 0 {
		return atMost(o.AppInflight)
	}
	return asManyAsFree
}

// Retry is a policy of exponential backoff. The zero value never retries.
type Retry struct {
	// MaxRetries is how many attempts may follow the first.
	MaxRetries int
	// InitialDelay is the upper bound of the delay before the second attempt. It doubles for each further one, up to
	// MaxDelay.
	InitialDelay time.Duration
	MaxDelay     time.Duration
}

// NextDelay returns the delay before the attempt that follows the given number of attempts, and whether there is one.
// The delay is random in the upper half of its bound, so that runs that failed together do not return together.
func (r Retry) NextDelay(attempts int64) (time.Duration, bool) {
	if attempts > int64(r.MaxRetries) {
		return 0, false
	}
	d := min(r.InitialDelay, r.MaxDelay)
	// Doubling in steps of at most MaxDelay-d cannot overflow.
	for i := int64(1); i < attempts && d < r.MaxDelay; i++ {
		d += min(d, r.MaxDelay-d)
	}
	return d/2 + rand.N(d/2+1), true
}

// IsExhausted reports whether attempt, which is about to begin, exceeds the allowed number.
func (r Retry) IsExhausted(attempt int64) bool { return attempt > int64(r.MaxRetries)+1 }
