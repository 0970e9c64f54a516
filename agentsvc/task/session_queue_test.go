package task_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// inSession returns a submission of a message in session c.
func inSession(sub task.Submission) task.Submission {
	sub.Message.Context = "c"
	return sub
}

// loadOpeningText returns the text of the message that opened the task of w.
func loadOpeningText(w *runWork) string {
	if s := w.run.Message.Text(); s != "" {
		return s
	}
	evs, err := w.ReadJournal(w)
	if err != nil || len(evs) == 0 {
		return fmt.Sprint(err)
	}
	if st := evs[0].Status; st != nil && st.Message != nil {
		return st.Message.Text()
	}
	return evs[0].Message.Text()
}

func mustSubmit(t *testing.T, p *process, sub task.Submission) agentsvc.Task {
	t.Helper()
	got, err := p.Messages.Submit(t.Context(), sub)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// testTimeout bounds how long a test waits for an event that must come.
const testTimeout = time.Minute

// messageCount is how many messages one session gets: fewer on SQLite, where all wait for one writer.
func messageCount(d *db.DB) int {
	if d.Engine() == db.SQLite {
		return 50
	}
	return 200
}

// waitForState waits until a task is in state.
func (p *process) waitForState(t *testing.T, id agentsvc.TaskID, state agentsvc.State) agentsvc.Task {
	t.Helper()
	var got agentsvc.Task
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var err error
		if got, err = p.Reader.Get(t.Context(), task.Visibility{}, id, all); err != nil {
			t.Fatal(err)
		}
		if got.Status.State == state {
			return got
		}
	}
	t.Fatalf("the task is %s, want %s", got.Status.State, state)
	return got
}

// TestTurns: of many messages of one session, sent through two processes by waiting and other callers, one executes
// at a time, in the order of acceptance.
func TestTurns(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		messages := messageCount(d)
		var at, most atomic.Int64
		var mu sync.Mutex
		var order []string
		work := func(w *runWork) error {
			most.Store(max(most.Load(), at.Add(1)))
			defer at.Add(-1)
			mu.Lock()
			order = append(order, loadOpeningText(w))
			mu.Unlock()
			at.Add(-1) // the next run may begin only after this end is committed
			err := w.recordEnd(agentsvc.Completed, "done")
			at.Add(1)
			return err
		}
		processes := []*process{startProcess(t, d, work), startProcess(t, d, work)}
		for _, p := range processes {
			p.startClaiming(t)
		}
		var want []string
		var tasks []agentsvc.TaskID
		var readers sync.WaitGroup
		for i := range messages {
			sub := inSession(newSubmission(fmt.Sprint(i)))
			p := processes[i%3%2]
			want = append(want, fmt.Sprint(i))
			if i%4 > 0 {
				tasks = append(tasks, mustSubmit(t, p, sub).ID)
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
			defer cancel()
			got, evs, err := p.Messages.SubmitAndFollow(ctx, sub)
			if err != nil {
				t.Fatal(err)
			}
			tasks = append(tasks, got.ID)
			readers.Go(func() {
				var last agentsvc.State
				for ev, err := range evs {
					if err != nil {
						t.Errorf("message %d: %v", i, err)
						return
					}
					if ev.Status != nil {
						last = ev.Status.State
					}
				}
				if last != agentsvc.Completed {
					t.Errorf("message %d: its reader saw it %s", i, last)
				}
			})
		}
		for _, id := range tasks {
			processes[0].waitForState(t, id, agentsvc.Completed)
		}
		readers.Wait()
		if diff := cmp.Diff(want, order); diff != "" || most.Load() != 1 {
			t.Errorf("%d at work at once, and in the order\n%s", most.Load(), diff)
		}
	})
}

// TestTurnsAtOnce: many concurrent messages of a session through two processes are all executed, one at a time.
func TestTurnsAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		messages := messageCount(d)
		var at, most, done atomic.Int64
		work := func(w *runWork) error {
			most.Store(max(most.Load(), at.Add(1)))
			at.Add(-1)
			done.Add(1)
			return w.recordEnd(agentsvc.Completed, "done")
		}
		processes := []*process{startProcess(t, d, work), startProcess(t, d, work)}
		for _, p := range processes {
			p.startClaiming(t)
		}
		ids := make([]agentsvc.TaskID, messages)
		var senders sync.WaitGroup
		for i := range messages {
			senders.Go(func() {
				sub := inSession(newSubmission("x"))
				sub.Awaited = i%2 == 0
				got, err := processes[i/2%2].Messages.Submit(context.Background(), sub)
				if err != nil {
					t.Error(err)
				}
				ids[i] = got.ID
			})
		}
		senders.Wait()
		for _, id := range ids {
			processes[1].waitForState(t, id, agentsvc.Completed)
		}
		if most.Load() != 1 || done.Load() != int64(messages) {
			t.Errorf("%d at work at once, %d done", most.Load(), done.Load())
		}
	})
}

// TestQueue: a waiting task is submitted, keeps the order of its session and can be cancelled; its caller just waits
// longer.
func TestQueue(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		finish, began := make(chan struct{}), make(chan string, 10)
		p := startProcess(t, d, func(w *runWork) error {
			began <- loadOpeningText(w)
			<-finish
			return w.recordEnd(agentsvc.Completed, "done")
		})
		p.startClaiming(t)
		opened := mustSubmit(t, p, withAwaited(newSubmission("first"))) // without a context: it opens the session
		<-began
		follow := func(text string) task.Submission {
			sub := newSubmission(text)
			sub.Message.Context, sub.Message.ID = opened.Context, agentsvc.MessageID("m-"+text)
			return sub
		}
		second, third := mustSubmit(t, p, withAwaited(follow("second"))), mustSubmit(t, p, follow("third"))
		if again := mustSubmit(t, p, follow("second")); again.ID != second.ID {
			t.Errorf("the second message again is task %s of %s", again.ID, second.ID)
		}
		if second.Status.State != agentsvc.Submitted || third.Status.State != agentsvc.Submitted || p.pool.Inflight() != 1 {
			t.Errorf("accepted as %s and %s, %d at work", second.Status.State, third.Status.State, p.pool.Inflight())
		}
		called := make(chan []agentsvc.Event)
		go func() {
			_, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), follow("fourth"))
			if err != nil {
				t.Error(err)
			}
			facts, _ := drainStream(t, evs)
			called <- facts
		}()
		if _, err := p.Messages.Submit(t.Context(), newReply(second, "x")); !errors.Is(err, agentsvc.ErrTaskBusy) {
			t.Errorf("a message to a task that waits for its turn: %v", err)
		}
		if _, err := p.Canceller.Cancel(t.Context(), task.Visibility{}, second.ID); err != nil {
			t.Fatal(err)
		}
		close(finish)
		var states []agentsvc.State
		for _, ev := range <-called {
			states = append(states, ev.Status.State)
		}
		if diff := cmp.Diff([]agentsvc.State{agentsvc.Submitted, agentsvc.Working, agentsvc.Completed}, states); diff != "" {
			t.Error(diff)
		}
		if a, b := <-began, <-began; a+b != "thirdfourth" && a+b != "fourththird" || len(began) > 0 {
			t.Errorf("then began %s, %s and %d more", a, b, len(began))
		}
	})
}

// TestReject: a message that is refused because its session is busy leaves nothing, and can be sent again.
func TestReject(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		finish := make(chan struct{})
		p := startProcess(t, d, func(w *runWork) error { <-finish; return replyUntilEnough(w) }, task.Options{OnBusy: map[string]task.OnBusy{"assistant": task.Reject}})
		p.startClaiming(t)
		for _, reserved := range []bool{true, false} {
			first := inSession(newSubmission("first"))
			first.Awaited, first.Message.ID = reserved, agentsvc.MessageID(fmt.Sprint(reserved))
			opened := mustSubmit(t, p, first)
			before, _ := p.Reader.List(t.Context(), task.Visibility{}, task.Query{})
			other := inSession(newSubmission("other"))
			other.Message.ID = "m2"
			for _, sub := range []task.Submission{other, withAwaited(other), inSession(newSubmission("x"))} {
				if _, err := p.Messages.Submit(t.Context(), sub); !errors.Is(err, agentsvc.ErrSessionBusy) {
					t.Errorf("a message with another at work: %v", err)
				}
			}
			if again := mustSubmit(t, p, first); again.ID != opened.ID {
				t.Errorf("the first message again is task %s of %s", again.ID, opened.ID)
			}
			after, err := p.Reader.List(t.Context(), task.Visibility{}, task.Query{})
			if err != nil || before.Total != after.Total {
				t.Errorf("%d tasks became %d (%v)", before.Total, after.Total, err)
			}
			if _, _, err := p.st.Tasks.FindSentMessage(t.Context(), ana, "assistant", store.SentMessage{Message: "m2", Context: "c"}); !errors.Is(err, agentsvc.ErrNotFound) {
				t.Errorf("the refused message is known: %v", err)
			}
			finish <- struct{}{}
			p.waitForState(t, opened.ID, agentsvc.InputRequired)
		}
		close(finish)
		settled := mustSubmit(t, p, inSession(newSubmission("first"))) // the earlier tasks wait for their user and occupy nothing
		p.waitForState(t, settled.ID, agentsvc.InputRequired)
	})
}

// TestInterrupt: a newer message cancels the run that executes and those that wait behind it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		var mu sync.Mutex
		var ran []string
		began := make(chan struct{}, 10)
		p := startProcess(t, d, func(w *runWork) error {
			s := loadOpeningText(w)
			mu.Lock()
			ran = append(ran, s)
			mu.Unlock()
			began <- struct{}{}
			if s == "hang" {
				<-w.Done()
				return context.Cause(w)
			}
			return w.recordEnd(agentsvc.Completed, "done")
		}, task.Options{OnBusy: map[string]task.OnBusy{"assistant": task.Interrupt}})
		p.startClaiming(t)
		first := inSession(withAwaited(newSubmission("hang")))
		first.Message.ID = "m1"
		hangs := mustSubmit(t, p, first)
		<-began
		patient := inSession(newSubmission("waits"))
		patient.Agent = "another"
		waits := mustSubmit(t, p, patient)
		if again := mustSubmit(t, p, first); again.ID != hangs.ID || again.Status.State != agentsvc.Working {
			t.Errorf("the same message again found task %s %s", again.ID, again.Status.State)
		}
		_, facts := submitAndDrain(t, p, inSession(newSubmission("newer")))
		if last := facts[len(facts)-1].Status; last.State != agentsvc.Completed {
			t.Errorf("the newer message ended %s", last.State)
		}
		for _, id := range []agentsvc.TaskID{hangs.ID, waits.ID} {
			got := p.waitForState(t, id, agentsvc.Cancelled)
			if m := got.Status.Message; m == nil || m.Text() != "A newer message of the conversation took the place of this task." {
				t.Errorf("cancelled with %+v", m)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if diff := cmp.Diff([]string{"hang", "newer"}, ran); diff != "" {
			t.Errorf("these ran\n%s", diff)
		}
	})
}

// TestInterruptAtOnce: of many concurrent newer messages the last one remains, and each gets an answer.
func TestInterruptAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, func(w *runWork) error { <-w.Done(); return context.Cause(w) },
			task.Options{OnBusy: map[string]task.OnBusy{"assistant": task.Interrupt}})
		p.startClaiming(t)
		ids := make([]agentsvc.TaskID, 8)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				got, err := p.Messages.Submit(context.Background(), inSession(withAwaited(newSubmission("x"))))
				if err != nil {
					t.Error(err)
				}
				ids[i] = got.ID
			})
		}
		wg.Wait()
		states := map[agentsvc.State]int{}
		for _, id := range ids {
			got, err := p.Reader.Get(t.Context(), task.Visibility{}, id, all)
			if err != nil {
				t.Fatal(err)
			}
			states[got.Status.State]++
			if !got.Status.State.IsTerminal() {
				defer func() { _, _ = p.Canceller.Cancel(context.Background(), task.Visibility{}, id) }()
			}
		}
		if states[agentsvc.Working] != 1 || states[agentsvc.Cancelled] != len(ids)-1 {
			t.Errorf("%v, want all cancelled but one", states)
		}
	})
}

// TestSettledTaskBlocksNoOthers: a task that waits for its user blocks no other task, and the user's answer waits in
// the session's queue.
func TestSettledTaskBlocksNoOthers(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		finish, began := make(chan struct{}), make(chan struct{}, 10)
		p := startProcess(t, d, func(w *runWork) error {
			if loadOpeningText(w) == "slow" {
				began <- struct{}{}
				<-finish
				return w.recordEnd(agentsvc.Completed, "done")
			}
			return replyUntilEnough(w)
		})
		p.startClaiming(t)
		asking, _ := submitAndDrain(t, p, inSession(newSubmission("hi")))
		slow := mustSubmit(t, p, inSession(withAwaited(newSubmission("slow"))))
		<-began
		var got agentsvc.Task
		for _, sub := range []task.Submission{withAwaited(newReply(asking, "enough")), newReply(asking, "more")} {
			var err error
			if got, err = p.Messages.Submit(t.Context(), sub); sub.Awaited && err != nil || !sub.Awaited && !errors.Is(err, agentsvc.ErrTaskBusy) {
				t.Errorf("an answer during another run: %s (%v)", got.Status.State, err)
			}
		}
		if n := p.pool.Inflight(); n != 1 {
			t.Errorf("%d at work", n)
		}
		close(finish)
		p.waitForState(t, slow.ID, agentsvc.Completed)
		p.waitForState(t, asking.ID, agentsvc.Completed)
	})
}

// TestCrash: after the worker of a session's run died, that run is still the first of its session.
func TestCrash(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		ran := make(chan string, 10)
		p := startProcess(t, d, func(w *runWork) error { ran <- loadOpeningText(w); return w.recordEnd(agentsvc.Completed, "done") })
		m := inSession(newSubmission("first")).Message
		m.ID, m.Role = "m1", agentsvc.RoleUser
		dead := store.Run{
			Tenant: "acme", Task: agentsvc.TaskID(agentsvc.NewID()), Turn: 1, Agent: "assistant", Context: "c", Owner: ana, Attempts: 1, FirstSeq: 1, Message: m,
			Lease: store.Lease{Worker: "dead", Epoch: 1, Seq: 2},
		}
		evs := []agentsvc.Event{
			{Task: dead.Task, Seq: 1, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Submitted, Message: &m}},
			{Task: dead.Task, Seq: 2, At: time.Now(), Status: &agentsvc.Status{State: agentsvc.Working}},
		}
		if err := p.st.Tasks.Create(t.Context(), store.NewTurn{Run: dead, Events: evs}); err != nil {
			t.Fatal(err)
		}
		second, third := mustSubmit(t, p, inSession(withAwaited(newSubmission("second")))), mustSubmit(t, p, inSession(newSubmission("third")))
		p.startClaiming(t)
		for _, id := range []agentsvc.TaskID{dead.Task, second.ID, third.ID} {
			p.waitForState(t, id, agentsvc.Completed)
		}
		if a, b, c := <-ran, <-ran, <-ran; a != "first" || b != "second" || c != "third" {
			t.Errorf("they ran as %s, %s, %s", a, b, c)
		}
	})
}
