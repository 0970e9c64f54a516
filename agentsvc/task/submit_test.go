package task_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// replyUntilEnough is a handler that asks for more input until the message is "enough".
func replyUntilEnough(w *runWork) error {
	text := w.run.Message.Text()
	if text == "" { // claimed from the queue: the message is on the log
		evs, err := w.ReadJournal(w)
		if err != nil {
			return err
		}
		if m := evs[0].Message; m != nil {
			text = m.Text()
		}
	}
	if text == "enough" {
		return w.recordEnd(agentsvc.Completed, "done")
	}
	return w.recordEnd(agentsvc.InputRequired, "and?")
}

// drainTurn reads evs until the turn ends.
func drainTurn(t *testing.T, evs func(func(agentsvc.Event, error) bool)) (facts []agentsvc.Event) {
	t.Helper()
	for ev, err := range evs {
		if err != nil {
			t.Fatal(err)
		}
		facts = append(facts, ev)
		if ev.Status != nil && (ev.Status.State.IsTerminal() || ev.Status.State.IsInterrupted()) {
			break
		}
	}
	return facts
}

func submitAndDrain(t *testing.T, p *process, sub task.Submission) (agentsvc.Task, []agentsvc.Event) {
	t.Helper()
	got, evs, err := p.Messages.SubmitAndFollow(withTimeout(t), sub)
	if err != nil {
		t.Fatal(err)
	}
	return got, drainTurn(t, evs)
}

// TestResume: the answer to a waiting task is a turn of its own in the same context.
func TestResume(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		opened, _ := submitAndDrain(t, p, newSubmission("hi"))
		elsewhere := newReply(opened, "x")
		elsewhere.Message.Context = "other"
		if _, err := p.Messages.Submit(t.Context(), elsewhere); !errors.Is(err, agentsvc.CodeInvalid) {
			t.Errorf("an answer in another context: %v", err)
		}
		got, facts := submitAndDrain(t, p, newReply(opened, "more"))
		p.requireLog(t, opened.ID, 3, facts)
		if got.ID != opened.ID || got.Context != opened.Context || got.Status.State != agentsvc.Working || len(got.History) != 3 {
			t.Errorf("continued as %+v", got)
		}
		if facts[0].Message == nil || facts[0].Message.Text() != "more" || facts[0].Message.Role != agentsvc.RoleUser {
			t.Errorf("the turn begins with %+v", facts[0])
		}
		_, facts = submitAndDrain(t, p, newReply(opened, "enough"))
		p.requireLog(t, opened.ID, 6, facts)
		if _, err := p.Messages.Submit(t.Context(), newReply(opened, "more")); !errors.Is(err, agentsvc.ErrTaskEnded) {
			t.Errorf("an answer to a task that has ended: %v", err)
		}
	})
}

// TestBusy: a task that executes accepts no message.
func TestBusy(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	p := startProcess(t, dbtest.NewSQLite(t), func(w *runWork) error { <-finish; return replyUntilEnough(w) })
	defer close(finish)
	for _, sub := range []task.Submission{newSubmission("hi"), withAwaited(newSubmission("hi"))} {
		got, err := p.Messages.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Messages.Submit(t.Context(), newReply(got, "x")); !errors.Is(err, agentsvc.ErrTaskBusy) {
			t.Errorf("a message to a task that is %s: %v", got.Status.State, err)
		}
	}
}

// TestAnswersAtOnce: of many concurrent answers to one question one is accepted; the others get "task busy".
func TestAnswersAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		finish := make(chan struct{})
		p := startProcess(t, d, func(w *runWork) error {
			if w.run.Turn > 1 {
				<-finish
			}
			return replyUntilEnough(w)
		})
		opened, _ := submitAndDrain(t, p, newSubmission("hi"))
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = p.Messages.Submit(context.Background(), withAwaited(newReply(opened, fmt.Sprint(i))))
			})
		}
		wg.Wait()
		received := 0
		for i, err := range errs {
			if err == nil {
				received++
			} else if !errors.Is(err, agentsvc.ErrTaskBusy) {
				t.Errorf("answer %d: %v", i, err)
			}
		}
		if n := p.pool.Inflight(); received != 1 || n > 1 {
			t.Errorf("%d answers taken, %d runs at work, want one", received, n)
		}
		close(finish)
	})
}

// TestResend: sending the same message again changes nothing and returns the same turn; another content under its id
// is a conflict.
func TestResend(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		first := newSubmission("hi")
		first.Message.ID, first.Message.Context = "m1", "c1"
		opened, _ := submitAndDrain(t, p, first)
		second := newReply(opened, "more")
		second.Message.ID = "m2"
		_, facts := submitAndDrain(t, p, second)
		length := len(p.readLog(t, opened.ID))

		again, seen := submitAndDrain(t, p, first)
		if again.ID != opened.ID || len(seen) != 3 {
			t.Errorf("the first message again: task %s of %s, %d facts", again.ID, opened.ID, len(seen))
		}
		again, seen = submitAndDrain(t, p, second)
		if diff := cmp.Diff(facts, seen); again.ID != opened.ID || diff != "" {
			t.Errorf("the second message again: task %s of %s\n%s", again.ID, opened.ID, diff)
		}
		other := first
		other.Message.Parts = []agentsvc.Part{agentsvc.TextPart("other")}
		if _, err := p.Messages.Submit(t.Context(), other); !errors.Is(err, task.ErrConflict) {
			t.Errorf("another body under the first id: %v", err)
		}
		other = second
		other.Message.Parts = []agentsvc.Part{agentsvc.TextPart("other")}
		if _, err := p.Messages.Submit(t.Context(), other); !errors.Is(err, task.ErrConflict) {
			t.Errorf("another body under the second id: %v", err)
		}
		other = second
		other.Owner = bob
		if _, err := p.Messages.Submit(t.Context(), other); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("another owner's answer: %v", err)
		}
		if n := len(p.readLog(t, opened.ID)); n != length {
			t.Errorf("the log grew from %d to %d", length, n)
		}
		submitAndDrain(t, p, newReply(opened, "enough"))
		again, seen = submitAndDrain(t, p, second)
		if diff := cmp.Diff(facts, seen); again.Status.State != agentsvc.Completed || diff != "" {
			t.Errorf("the second message again, after the end: %s\n%s", again.Status.State, diff)
		}
		if n := p.pool.Inflight(); n != 0 {
			t.Errorf("%d runs are at work", n)
		}
		free := newSubmission("hi")
		free.Message.ID = "m1"
		one, err := p.Messages.Submit(t.Context(), free)
		if err != nil || one.ID == opened.ID {
			t.Fatalf("the same id without a context: %s (%v)", one.ID, err)
		}
		two, err := p.Messages.Submit(t.Context(), free)
		if err != nil || two.ID != one.ID {
			t.Errorf("and again: %s (%v), want %s", two.ID, err, one.ID)
		}
		free.Message.Parts = []agentsvc.Part{agentsvc.TextPart("other")}
		if three, err := p.Messages.Submit(t.Context(), free); err != nil || three.ID == one.ID {
			t.Errorf("another body without a context: %s (%v), want a new task", three.ID, err)
		}
	})
}

// TestInvalid: an invalid message is refused with the field at fault, and leaves nothing.
func TestInvalid(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		for field, m := range map[string]agentsvc.Message{
			"message.parts":      {},
			"message.message_id": {ID: "a\x00b", Parts: newSubmission("x").Message.Parts},
			"message.context_id": {Context: agentsvc.ContextID(strings.Repeat("x", 257)), Parts: newSubmission("x").Message.Parts},
		} {
			_, err := p.Messages.Submit(t.Context(), task.Submission{Agent: "assistant", Owner: ana, Awaited: true, Message: m})
			var invalid *agentsvc.Error
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		odd := newSubmission("NUL \x00 and \xff")
		odd.Message.ID, odd.Message.Context = agentsvc.MessageID(strings.Repeat("é", 128)), agentsvc.ContextID(strings.Repeat("x", 256))
		if _, err := p.Messages.Submit(t.Context(), odd); err != nil {
			t.Errorf("odd text and long ids: %v", err)
		}
		page, err := p.Reader.List(t.Context(), task.Visibility{}, task.Query{})
		if err != nil || page.Total != 1 {
			t.Errorf("%d tasks (%v), want 1", page.Total, err)
		}
	})
}

// TestFull: a caller for whom no slot is free waits for the queue.
func TestFull(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		for {
			if _, ok := p.pool.AcquireSlot("acme"); !ok {
				break
			}
			t.Cleanup(func() { p.pool.ReleaseSlot("acme") })
		}
		p.startClaiming(t)
		got, facts := submitAndDrain(t, p, newSubmission("enough"))
		if got.Status.State != agentsvc.Submitted {
			t.Errorf("accepted as %s", got.Status.State)
		}
		p.requireLog(t, got.ID, 0, facts)
		var states []string
		for _, ev := range facts {
			states = append(states, string(ev.Status.State))
		}
		if s := strings.Join(states, " "); s != "submitted working input_required" {
			t.Errorf("got %s", s)
		}
	})
}

// TestList: pages are complete and disjoint, and a token is valid only for its query.
func TestList(t *testing.T) {
	t.Parallel()
	dbtest.ForEachEngine(t, func(t *testing.T, d *db.DB) {
		p := startProcess(t, d, replyUntilEnough)
		for i := range 7 {
			sub := newSubmission("hi")
			sub.Message.Context = agentsvc.ContextID(fmt.Sprint("c", i%2))
			if i == 6 {
				sub.Owner = bob
			}
			if _, err := p.Messages.Submit(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
		}
		visibility := task.Visibility{Agents: []string{"assistant"}, Owner: &ana}
		q := task.Query{Size: 2}
		var ids []agentsvc.TaskID
		var token string
		for pages := 1; ; pages++ {
			page, err := p.Reader.List(t.Context(), visibility, q)
			if err != nil || page.Total != 6 {
				t.Fatalf("page %d: %d in all (%v)", pages, page.Total, err)
			}
			for _, task := range page.Tasks {
				ids = append(ids, task.ID)
			}
			if page.Next == "" {
				if pages != 3 {
					t.Errorf("%d pages, want 3", pages)
				}
				break
			}
			q.Token, token = page.Next, page.Next
		}
		if len(ids) != 6 {
			t.Errorf("%d tasks on all pages, want 6", len(ids))
		}
		for i := 1; i < len(ids); i++ {
			if ids[i] >= ids[i-1] {
				t.Errorf("%s comes after %s", ids[i], ids[i-1])
			}
		}
		for name, c := range map[string]struct {
			reach task.Visibility
			q     task.Query
		}{
			"another owner":   {task.Visibility{Agents: visibility.Agents, Owner: &bob}, task.Query{Token: token}},
			"everyone":        {task.Visibility{Agents: visibility.Agents}, task.Query{Token: token}},
			"another agent":   {task.Visibility{Agents: []string{"other"}, Owner: &ana}, task.Query{Token: token}},
			"another context": {visibility, task.Query{Token: token, Context: "c0"}},
			"another state":   {visibility, task.Query{Token: token, State: agentsvc.Working}},
			"cut":             {visibility, task.Query{Token: token[:10]}},
			"changed":         {visibility, task.Query{Token: token[:len(token)-2] + "AA"}},
			"no base64":       {visibility, task.Query{Token: "%%%"}},
			"size 101":        {visibility, task.Query{Size: 101}},
			"size -1":         {visibility, task.Query{Size: -1}},
			"no state":        {visibility, task.Query{State: "done"}},
			"odd context":     {visibility, task.Query{Context: "a\x00"}},
		} {
			if _, err := p.Reader.List(t.Context(), c.reach, c.q); !errors.Is(err, agentsvc.CodeInvalid) {
				t.Errorf("%s: %v, want an invalid request", name, err)
			}
		}
		page, err := p.Reader.List(t.Context(), task.Visibility{}, task.Query{Context: "c0", Parts: store.TaskParts{History: true}})
		if err != nil || page.Total != 4 || len(page.Tasks) != 4 || page.Next != "" || len(page.Tasks[0].History) != 1 {
			t.Errorf("a context of the whole app: %+v (%v)", page, err)
		}
		foreign := task.New(store.New(d, "globex"), "globex", 1, p.hub, p.pool, nil, task.Options{})
		if _, err := foreign.Reader.List(t.Context(), visibility, task.Query{Size: 2, Token: token}); err == nil {
			t.Error("a token of another tenant is taken")
		}
	})
}
