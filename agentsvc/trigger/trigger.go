// Package trigger starts agents without a caller: by the clock ([Scheduler]) or by a request of another service
// (webhooks).
//
// Schedules. A schedule is a [Cron] in table schedule, with the time of its next tick. The [Scheduler] of each process
// reads the ticks that are due by the database's clock. It claims a tick for [SchedulerOptions].ClaimTTL, starts the
// agent under a key that follows from the scheduled time ([TickKey]), and stores the outcome and the next tick. So a
// tick becomes one task, however many processes run and whichever of them die: after a crash the claim expires, another
// process repeats the start, and the key finds the task that exists.
//
// When the configuration of an app changes, syncSchedules reads the schedules of its new generation. An unchanged
// schedule keeps its next tick. A new one begins with its first tick from now on, and so does a changed one unless a
// tick is due: that tick is started first, under the new schedule. A removed one is deleted. Before the schedules are
// synchronized, [SchedulerOptions].StartTick returns [ErrNoSchedule] for a changed one, and the tick stays due. A
// configuration that does not load changes nothing.
//
// Webhooks. A [Signature] verifies where a delivery comes from, an [Input] makes the agent's message from its body, a
// [Callback] finds where the result is posted. [DeliveryID] is how the sender identifies a delivery: one that is repeated
// under its id starts one task. The HTTP endpoint is in package agentsvc/surface/webhook.
//
// docs/triggers.md describes both for users.
package trigger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"stoa/agentsvc"
)

// TaskOwner returns the owner of the tasks that an agent's trigger starts. No credential authenticates as this owner.
func TaskOwner(agent string) agentsvc.Owner {
	return agentsvc.Owner{Issuer: "trigger", Subject: "trigger:" + agent}
}

// TickKey returns the idempotency key of a tick, unique for an agent.
func TickKey(at time.Time) string { return "tick-" + strconv.FormatInt(at.Unix(), 10) }

// DeliveryID is the id that the sender of a delivery gave it. The zero value is none.
type DeliveryID struct {
	Text string
	// IsUnsigned says that only the body is signed. The id then identifies the delivery together with the body: otherwise
	// a recorded delivery that is sent again under the id of another one could take its place.
	IsUnsigned bool
}

// Key returns the idempotency key of the delivery with that body, "" if it has no id: then every delivery is a new one.
func (id DeliveryID) Key(body []byte) string {
	if id.Text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(id.Text))
	if id.IsUnsigned {
		ofBody := sha256.Sum256(body)
		sum = sha256.Sum256(append(sum[:], ofBody[:]...))
	}
	return "delivery-" + hex.EncodeToString(sum[:])
}
