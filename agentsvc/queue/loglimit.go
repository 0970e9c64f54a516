package queue

import (
	"sync"
	"time"

	"stoa/tenancy/db"
)

// logEvery is the time between two lines of the log that tell the same of one app.
const logEvery = time.Minute

// logLimit bounds how often the log tells the same of one app: runs that cannot be recorded are tried again each second. The
// zero value is ready.
type logLimit struct {
	mu   sync.Mutex
	apps map[db.ID]*logEntry
}

// logEntry is what the log was told of an app.
type logEntry struct {
	at      time.Time
	omitted int // lines since
}

// allowEntry reports whether a line about the app is to be written now, and how many were omitted since the last one.
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
	for id, other := range l.apps { // of which there is nothing left to tell
		if now.Sub(other.at) >= logEvery && other.omitted == 0 {
			delete(l.apps, id)
		}
	}
	l.apps[app] = &logEntry{at: now}
	return omitted, true
}
