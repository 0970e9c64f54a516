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
// schedule keeps its next tick. A new or changed one begins with its first tick from now on. A removed one is deleted.
// A tick that was claimed before a change of its specification does not start the agent: [SchedulerOptions].StartTick
// returns [ErrNoSchedule].
//
// Webhooks. A [Signature] verifies where a delivery comes from, an [Input] makes the agent's message from its body, a
// [Callback] finds where the result is posted. [DeliveryKey] is the idempotency key, so that a repeated delivery starts
// one task. The HTTP endpoint is in package agentsvc/surface/webhook.
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

// DeliveryKey returns the idempotency key of a delivery: a hash of its id or, if it has no id that is authenticated, of
// its body.
func DeliveryKey(id string, body []byte) string {
	kind, of := "id-", []byte(id)
	if id == "" {
		kind, of = "body-", body
	}
	sum := sha256.Sum256(of)
	return "delivery-" + kind + hex.EncodeToString(sum[:])
}
