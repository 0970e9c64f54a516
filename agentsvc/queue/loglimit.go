package queue

import (
	"sync"
	"time"

	"stoa/tenancy/db"
)

// logEvery is the minimum time between two log lines about the same tenant.
const logEvery = time.Minute

// logLimit limits repeated log lines to one per tenant and logEvery: a run whose end cannot be recorded is retried
// every second, and would flood the log. The zero value is ready. It is safe for concurrent use.
type logLimit struct {
	mu   sync.Mutex
	apps map[db.ID]*logEntry
}

// logEntry is the last line about a tenant.
type logEntry struct {
	at      time.Time
	omitted int // lines suppressed since
}

// allowEntry reports whether a line about the app may be written now, and how many were omitted since the previous
// one.
func (l *logLimit) allowEntry(app db.ID, now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.apps[app]
	if last != nil && now.Sub(last.at) < logEvery {
		last.omitted++
		return 0, false
	}
	if last != nil {
		omitted = last.omitted
	} else if l.apps == nil {
		l.apps = map[db.ID]*logEntry{}
	}
	// Entries that no longer limit or report anything are dropped, so the map stays as small as the number of failing
	// tenants.
	for id, other := range l.apps {
		if now.Sub(other.at) >= logEvery && other.omitted == 0 {
			delete(l.apps, id)
		}
	}
	l.apps[app] = &logEntry{at: now}
	return omitted, true
}
