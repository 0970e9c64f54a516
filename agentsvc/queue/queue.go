// Package queue brings accepted runs to workers. A [Pool] is the workers of one process: a run that somebody waits for
// is handed over in memory the moment it is accepted, under a lease it was born with; every other run is claimed from
// the database. A lease is the process's heartbeat by the database's clock; runs of a process that stopped beating
// are rescued by any other.
package queue

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/signal"
)

// Options tune a [Pool]. A zero field takes the default named beside it.
type Options struct {
	Workers     int           // runs claimed from the queue at a time: 4; one more is kept for an app that has none of these
	MaxInflight int           // runs handed over in memory at a time: 512
	AppInflight int           // of one app: 0 = as many as it leaves free to others
	LendAfter   time.Duration // how long all workers may be busy before an app that has none of them begins a run nevertheless: 5s
	StaleAfter  time.Duration // age of the last heartbeat at which a worker counts as dead: 5m
	Retry       Retry
	// GiveUp ends the task of a run that has had its tries, none of which recorded an end, for the given reason. It
	// returns [agentsvc.ErrLeaseLost] where the task no longer waits for the run. Without it such a run is tried for ever.
	GiveUp     func(ctx context.Context, run store.Run, reason string) error
	ConfigHash func() string // hash of this process's own configuration file, "" without one
	AcceptOnly bool          // takes no runs: those accepted in this process are for others
	Bus        *signal.Bus   // to the workers of other processes; nil = they look for themselves
	Calls      Calls         // of the runs at work here; nil = nobody ends one
	Log        *slog.Logger
}

// Calls are the tool calls under way in this process.
type Calls interface {
	HasCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID) bool
	// StopCall ends a call. It reports whether there is one.
	StopCall(tenant db.ID, task agentsvc.TaskID, call agentsvc.CallID, reason string) bool
}

func (o Options) withDefaults() Options {
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

// liveRule is how many runs of one app are handed over in memory at a time.
func (o Options) liveRule() shareRule {
	if o.AppInflight > 0 {
		return atMost(o.AppInflight)
	}
	return asManyAsFree
}

// Retry says how often a run is tried again and when. The zero value never tries again.
type Retry struct {
	MaxRetries   int           // tries after the first
	InitialDelay time.Duration // before the second try, doubled for each further one
	MaxDelay     time.Duration // of the delay
}

// NextDelay returns the delay before the try after the given number of attempts, and whether there is to be one. The delay
// is drawn from the upper half of its bound, so that runs that failed together do not come back together.
func (r Retry) NextDelay(attempts int64) (time.Duration, bool) {
	if attempts > int64(r.MaxRetries) {
		return 0, false
	}
	d := min(r.InitialDelay, r.MaxDelay)
	for i := int64(1); i < attempts && d < r.MaxDelay; i++ {
		d += min(d, r.MaxDelay-d)
	}
	return d/2 + rand.N(d/2+1), true
}

// IsExhausted reports whether a run that is about to begin this attempt has had all of its tries.
func (r Retry) IsExhausted(attempt int64) bool { return attempt > int64(r.MaxRetries)+1 }
