package db

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The states in which the platform's database does not work. During such a state, every error of it that is caused by
// the state matches one of them.
var (
	// ErrDiskFull reports that the disk of the database is full.
	ErrDiskFull = errors.New("the disk of the database is full")
	// ErrUnreachable reports that the database does not answer, or refuses to.
	ErrUnreachable = errors.New("the database does not answer")
)

// IsOutage reports whether err was caused by a state of the database that its [DB] has logged. What fails meanwhile
// needs no log line of its own.
func IsOutage(err error) bool { return errors.Is(err, ErrDiskFull) || errors.Is(err, ErrUnreachable) }

const (
	// frozenAfter is how long the database has answered nothing when a missed deadline counts as an outage. Before, the
	// deadline may have been too short.
	frozenAfter = 4 * time.Second
	// recoverAfter is how long no failure may have occurred when an outage counts as over, so that a database that
	// fails now and then does not write two log lines each time.
	recoverAfter = time.Second
	// minFreeBytes is the space below which a disk counts as full. SQLite may still be able to change rows then, as
	// long as its files need not grow.
	minFreeBytes = 1 << 20
)

// outageMonitor logs one line when the database stops to work and one when it works again. It is nil for databases of
// apps and in memory.
type outageMonitor struct {
	log *slog.Logger
	// folder is that of a SQLite file, "" on PostgreSQL.
	folder string
	// isDown is whether current is set, readable without the lock. answeredAt is the time of the last answer, in
	// microseconds since 1970.
	isDown     atomic.Bool
	answeredAt atomic.Int64

	mu       sync.Mutex // guards the fields below
	current  error      // ErrDiskFull, ErrUnreachable or nil
	since    time.Time
	failedAt time.Time // of the last failure
}

func newOutageMonitor(folder string, log *slog.Logger) *outageMonitor {
	m := &outageMonitor{log: log, folder: folder}
	m.answeredAt.Store(time.Now().UnixMicro())
	return m
}

// observe takes note of the outcome of a batch and returns err, which matches the present outage if that caused it.
func (m *outageMonitor) observe(err error, writes bool) error {
	if m == nil {
		return err
	}
	now := time.Now()
	if err == nil {
		m.answeredAt.Store(now.UnixMicro())
		if m.isDown.Load() {
			m.noteSuccess(now, writes)
		}
		return nil
	}
	outage := m.classifyOutage(err, now)
	if outage == nil {
		return err
	}
	m.noteOutage(outage, err, now)
	return &outageError{outage, err}
}

// classifyOutage returns the outage that err is a sign of, nil for any other error.
func (m *outageMonitor) classifyOutage(err error, now time.Time) error {
	var result *sqlite.Error
	switch state := sqlState(err); {
	case IsFull(err):
		return ErrDiskFull
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		if now.Sub(time.UnixMicro(m.answeredAt.Load())) < frozenAfter {
			return nil
		}
		return ErrUnreachable
	case state != "":
		if strings.HasPrefix(state, "08") || strings.HasPrefix(state, "53") || strings.HasPrefix(state, "57P") {
			return ErrUnreachable
		}
		return nil
	case errors.As(err, &result):
		switch result.Code() & 0xff {
		case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
			return ErrUnreachable
		}
		return nil
	case isConnectionLost(err), isUnsent(err):
		return ErrUnreachable
	}
	return nil
}

// noteOutage records a failure and logs the beginning of an outage, with the text of err: an error value is a sign of a
// consequence, which a process does not log ([IsOutage]).
func (m *outageMonitor) noteOutage(outage, err error, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failedAt = now
	if errors.Is(m.current, outage) {
		return
	}
	if m.current == nil {
		m.since = now
	}
	m.current = outage
	m.isDown.Store(true)
	if errors.Is(outage, ErrDiskFull) {
		m.log.Error("the disk of the database is full: what writes fails until there is space", "folder", m.folder, "error", err.Error())
		return
	}
	m.log.Error("the database does not answer: calls fail until it does", "error", err.Error())
}

// noteSuccess logs the end of an outage, if nothing has failed for recoverAfter. Only a write shows that a full disk has
// space again.
func (m *outageMonitor) noteSuccess(now time.Time, writes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil || now.Sub(m.failedAt) < recoverAfter || errors.Is(m.current, ErrDiskFull) && (!writes || m.checkSpace() != nil) {
		return
	}
	m.current = nil
	m.isDown.Store(false)
	m.log.Info("the database works again", "down", now.Sub(m.since).Seconds())
}

// checkState returns the outage, if there is one, and [ErrDiskFull] where the disk has no space left.
func (m *outageMonitor) checkState() error {
	if m == nil {
		return nil
	}
	if err := m.checkSpace(); err != nil {
		m.noteOutage(ErrDiskFull, err, time.Now())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(m.current, ErrDiskFull) {
		return m.current
	}
	return nil
}

// checkSpace returns [ErrDiskFull] if less than minFreeBytes are free on the disk of a SQLite file. A file system that
// does not answer the question counts as free.
func (m *outageMonitor) checkSpace() error {
	if free, ok := m.readFreeBytes(); !ok || free >= minFreeBytes {
		return nil
	}
	return ErrDiskFull
}

// readFreeBytes returns the free space on the disk of a SQLite file, and whether it is known.
func (m *outageMonitor) readFreeBytes() (uint64, bool) {
	var s syscall.Statfs_t
	if m.folder == "" || syscall.Statfs(m.folder, &s) != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}

// outageError is an error of the database that an outage caused.
type outageError struct{ outage, cause error }

func (e *outageError) Error() string   { return e.outage.Error() + ": " + e.cause.Error() }
func (e *outageError) Unwrap() []error { return []error{e.outage, e.cause} }
