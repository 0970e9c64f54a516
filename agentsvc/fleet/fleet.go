// Package fleet shows an operator all processes of an installation from any one of them. A [Recorder] counts the calls
// and runs of a process in memory, a [Reporter] writes these counts and a row about the process to the platform's
// database every few seconds, and [Load] and [LoadTraffic] read what all processes have written.
//
// The counts are for people who look at the last hour. Alerts and longer times are for metrics.
package fleet

import (
	"fmt"
	"os"
	"time"

	"stoa/agentsvc"
)

// NewProcessID returns what identifies a process in its row, its leases and log lines about its death: its host, by
// which an operator finds it, its process id and a part that is new for each start.
func NewProcessID() string {
	id := agentsvc.NewID()
	return fmt.Sprintf("%s-%d-%s", hostName(), os.Getpid(), id[len(id)-12:])
}

// hostName returns the host's name, of which 63 bytes are enough to find it.
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.63s", host)
}

// MaxWindow is how long traffic is kept, and the rows of processes that ended without deleting theirs.
const MaxWindow = time.Hour
