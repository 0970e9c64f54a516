package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/queue"
	"stoa/agentsvc/store"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// asking returns a handler whose runs ask for their lease whenever somebody puts a channel for the answer in.
func asking() (queue.Handler, chan<- chan error) {
	asked := make(chan chan error)
	return func(ctx context.Context, _ store.Run) error {
		for {
			select {
			case answer := <-asked:
				answer <- agentsvc.Holds(ctx)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}, asked
}

func ask(b bench, asked chan<- chan error) error {
	b.Helper()
	answer := make(chan error, 1)
	select {
	case asked <- answer:
	case <-time.After(patience):
		b.Fatal("the run has ended")
	}
	return receive(b, answer)
}

// rescue takes the runs of workers that count as dead, as another process does, until there is one.
func (b bench) rescue(stale time.Duration) {
	b.Helper()
	runs := store.NewRuns(b.d)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		n, err := runs.Rescue(b.Context(), stale)
		if err != nil {
			b.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	b.Fatal("nobody counts as dead")
}

// TestRobbed: a process that was stopped for longer than its lease finds out before its runs do anything more.
func TestRobbed(t *testing.T) {
	each(t, func(b bench) {
		const stale = 2 * time.Second
		handle, asked := asking()
		p, stop := b.pool(queue.Options{Stale: stale}, handle)
		run := b.live(p)
		stop()
		b.rescue(stale)
		if err := ask(b, asked); !errors.Is(err, agentsvc.ErrLost) {
			b.Errorf("the run that another process has may go on: %v", err)
		}
		b.becomes(run, row{store.Pending, 1})
	})
}

// TestOverslept: a process that was stopped, and whose runs nobody has taken yet, keeps them by saying so first.
func TestOverslept(t *testing.T) {
	each(t, func(b bench) {
		const stale = 3 * time.Second
		handle, asked := asking()
		p, stop := b.pool(queue.Options{Stale: stale}, handle)
		run := b.live(p)
		stop()
		time.Sleep(stale)
		if err := ask(b, asked); err != nil {
			b.Errorf("the run may not go on: %v", err)
		}
		if n, err := store.NewRuns(b.d).Rescue(b.Context(), stale); n != 0 || err != nil {
			b.Errorf("another process takes the run: %v", err)
		}
		if got := b.row(run); got != (row{store.Running, 1}) {
			b.Errorf("the run is %+v", got)
		}
	})
}

// locked runs f while nobody can read or write a table.
func (b bench) locked(table string, f func()) {
	b.Helper()
	err := b.d.Platform().Tx(b.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(b.Context(), "LOCK TABLE "+table+" IN ACCESS EXCLUSIVE MODE")
		if err == nil {
			f()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
}

// TestUnknown: whose lease is fresh asks nobody. Who cannot know whether it still is, does nothing more.
func TestUnknown(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	b := bench{t, d, store.New(d, "acme")}
	const stale = 4 * time.Second
	handle, asked := asking()
	p, stop := b.pool(queue.Options{Stale: stale}, handle)
	b.live(p)
	stop()
	b.locked("worker", func() {
		if err := ask(b, asked); err != nil {
			t.Errorf("with a fresh lease: %v", err)
		}
		time.Sleep(stale * 3 / 4)
		if err := ask(b, asked); !errors.Is(err, queue.ErrStale) {
			t.Errorf("with a lease that cannot be renewed: %v", err)
		}
	})
}

// TestWaking: a heartbeat by which a process that has lost its runs is alive again makes them no more its own.
func TestWaking(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	b := bench{t, d, store.New(d, "acme")}
	const stale = 2 * time.Second
	handle, asked := asking()
	ended := make(chan error, 1)
	p, stop := b.pool(queue.Options{Stale: stale}, func(ctx context.Context, run store.Run) error {
		err := handle(ctx, run)
		ended <- err
		return err
	})
	b.live(p)
	stop()
	b.rescue(stale)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	b.locked("run", func() {
		go func() { defer close(over); _ = p.Run(ctx) }()
		b.beats()
		answer := make(chan error, 1)
		select {
		case asked <- answer:
			if err := receive(b, answer); err == nil {
				t.Error("the run that another process has may go on")
			}
		case err := <-ended: // where that comes before the question
			if !errors.Is(err, queue.ErrStale) {
				t.Errorf("the run ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the run neither answers nor ends")
		}
	})
	cancel()
	<-over
}

// beats waits for a heartbeat.
func (b bench) beats() {
	b.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		var n int
		var batch db.Batch
		batch.Query(func(s db.Row) error { return s.Scan(&n) }, "SELECT COUNT(*) FROM worker")
		if err := b.d.Platform().Do(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	b.Fatal("no heartbeat")
}
