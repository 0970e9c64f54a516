package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// newLeaseProbe returns a handler whose runs check the lease for each channel that the test sends, and answer on it.
func newLeaseProbe() (queue.Handler, chan<- chan error) {
	requests := make(chan chan error)
	return func(ctx context.Context, _ store.Run, lease agentsvc.LeaseCheck) error {
		for {
			select {
			case answer := <-requests:
				answer <- lease.Check(ctx)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}, requests
}

func probeLease(b fixture, requests chan<- chan error) error {
	b.Helper()
	answer := make(chan error, 1)
	select {
	case requests <- answer:
	case <-time.After(testTimeout):
		b.Fatal("the run has ended")
	}
	return receiveValue(b, answer)
}

// rescueRuns rescues runs as another process does, until there was at least one.
func (fix fixture) rescueRuns(stale time.Duration) {
	fix.Helper()
	runs := store.NewRunQueue(fix.d)
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		n, _, err := runs.RescueRuns(fix.Context(), stale)
		if err != nil {
			fix.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	fix.Fatal("no worker counts as dead")
}

// TestRescuedWhileStopped: a process that was suspended for longer than its lease notices before its runs do anything
// more.
func TestRescuedWhileStopped(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		const stale = 2 * time.Second
		handle, requests := newLeaseProbe()
		p, stop := b.openPool(queue.Options{StaleAfter: stale}, handle)
		run := b.startLiveRun(p)
		stop()
		b.rescueRuns(stale)
		if err := probeLease(b, requests); !errors.Is(err, agentsvc.ErrLeaseLost) {
			b.Errorf("the run that another process has may go on: %v", err)
		}
		b.waitForRow(run, runRow{store.Pending, 1})
	})
}

// TestRenewedAfterPause: a process that was suspended and whose runs were not rescued yet keeps them by renewing its
// lease first.
func TestRenewedAfterPause(t *testing.T) {
	forEachEngine(t, func(b fixture) {
		const stale = 3 * time.Second
		handle, requests := newLeaseProbe()
		p, stop := b.openPool(queue.Options{StaleAfter: stale}, handle)
		run := b.startLiveRun(p)
		stop()
		time.Sleep(stale)
		if err := probeLease(b, requests); err != nil {
			b.Errorf("the run may not go on: %v", err)
		}
		if n, _, err := store.NewRunQueue(b.d).RescueRuns(b.Context(), stale); n != 0 || err != nil {
			b.Errorf("another process takes the run: %v", err)
		}
		if got := b.readRow(run); got != (runRow{store.Running, 1}) {
			b.Errorf("the run is %+v", got)
		}
	})
}

// TestRescuedWorkersAreNamed checks that the line about runs of dead processes has the names of those processes.
func TestRescuedWorkersAreNamed(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	forEachEngine(t, func(b fixture) {
		const stale = 2 * time.Second
		handle, _ := newLeaseProbe()
		p, stop := b.openPool(queue.Options{StaleAfter: stale}, handle)
		b.startLiveRun(p)
		worker, _ := p.AcquireSlot("acme")
		p.ReleaseSlot("acme")
		stop()
		if !strings.HasPrefix(worker, fmt.Sprintf("%.63s-%d-", host, os.Getpid())) {
			b.Errorf("the worker %s has not the name of its host and its process id", worker)
		}
		var log lockedLog
		b.openPool(queue.Options{StaleAfter: stale, Log: slog.New(slog.NewTextHandler(&log, nil))}, handle)
		want := "workers=[" + worker + "]"
		b.waitUntil("a line has "+want, func() bool { return strings.Contains(log.String(), want) })
	})
}

// lockedLog is a log that several goroutines write and read.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// withLockedTable runs f while no other transaction can read or write a table.
func (fix fixture) withLockedTable(table string, f func()) {
	fix.Helper()
	err := fix.d.Platform().RunTx(fix.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(fix.Context(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
		if err == nil {
			f()
		}
		return err
	})
	if err != nil {
		fix.Fatal(err)
	}
}

// TestUnknown: a fresh lease needs no query to be confirmed; a lease that cannot be confirmed stops the work.
func TestUnknown(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	b := fixture{t, d, store.New(d, "acme")}
	const stale = 4 * time.Second
	handle, requests := newLeaseProbe()
	p, stop := b.openPool(queue.Options{StaleAfter: stale}, handle)
	b.startLiveRun(p)
	stop()
	b.withLockedTable("worker", func() {
		if err := probeLease(b, requests); err != nil {
			t.Errorf("with a fresh lease: %v", err)
		}
		time.Sleep(stale * 3 / 4)
		if err := probeLease(b, requests); !errors.Is(err, queue.ErrStale) {
			t.Errorf("with a lease that cannot be renewed: %v", err)
		}
	})
}

// TestRenewalKeepsNoLostRuns: a heartbeat by which a process that has lost its runs is alive again does not make the
// runs its own again.
func TestRenewalKeepsNoLostRuns(t *testing.T) {
	t.Parallel()
	d := dbtest.NewPostgres(t)
	b := fixture{t, d, store.New(d, "acme")}
	const stale = 2 * time.Second
	handle, requests := newLeaseProbe()
	ended := make(chan error, 1)
	p, stop := b.openPool(queue.Options{StaleAfter: stale}, func(ctx context.Context, run store.Run, lease agentsvc.LeaseCheck) error {
		err := handle(ctx, run, lease)
		ended <- err
		return err
	})
	b.startLiveRun(p)
	stop()
	b.rescueRuns(stale)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	b.withLockedTable("run", func() {
		go func() { defer close(over); _ = p.Run(ctx) }()
		b.waitForHeartbeat()
		answer := make(chan error, 1)
		select {
		case requests <- answer:
			if err := receiveValue(b, answer); err == nil {
				t.Error("the run that another process has may go on")
			}
		case err := <-ended: // where the heartbeat precedes the check
			if !errors.Is(err, queue.ErrStale) {
				t.Errorf("the run ended with %v", err)
			}
		case <-time.After(testTimeout):
			t.Error("the run neither answers nor ends")
		}
	})
	cancel()
	<-over
}

// waitForHeartbeat waits for a heartbeat.
func (fix fixture) waitForHeartbeat() {
	fix.Helper()
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var n int
		var batch db.Batch
		batch.Query(func(s db.Row) error { return s.Scan(&n) }, "SELECT COUNT(*) FROM worker")
		if err := fix.d.Platform().Do(fix.Context(), &batch); err != nil {
			fix.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	fix.Fatal("no heartbeat")
}
