// Package trigger starts agents without a caller: when a clock says so, or when another service does.
//
// A schedule is a [Cron] that stands in a table with the time of its next tick. The [Scheduler] of every process looks at the
// table, by the database's time; whoever takes a tick has it for a while, starts the agent under a key that follows from
// the scheduled time, and writes down the next. So a tick is one task, however many processes there are and whichever of
// them die.
//
// A webhook is a [Signature], which says whether a delivery comes from who it says, and an [Input], which makes the
// agent's message of its body. [DeliveryKey] names it, so that it starts one task however often it is sent.
package trigger

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"stoa/agentsvc"
)

// TaskOwner is whom the tasks belong to that an agent's trigger has started. No token speaks for it.
func TaskOwner(agent string) agentsvc.Owner {
	return agentsvc.Owner{Issuer: "trigger", Subject: "trigger:" + agent}
}

// TickKey is the key under which a tick of an agent's schedule takes effect once.
func TickKey(at time.Time) string { return "tick-" + strconv.FormatInt(at.Unix(), 10) }

// DeliveryKey is the key under which a delivery takes effect once: by its id, or where its sender has given it none that can
// be believed by its body.
func DeliveryKey(id string, body []byte) string {
	kind, of := "id-", []byte(id)
	if id == "" {
		kind, of = "body-", body
	}
	sum := sha256.Sum256(of)
	return "delivery-" + kind + hex.EncodeToString(sum[:])
}
