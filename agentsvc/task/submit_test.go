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

// asks asks back until it is told "enough".
func asks(w *work) error {
	text := w.run.Message.Text()
	if text == "" { // claimed from the queue: the message stands in the log
		evs, err := w.Journal(w)
		if err != nil {
			return err
		}
		if m := evs[0].Message; m != nil {
			text = m.Text()
		}
	}
	if text == "enough" {
		return w.end(agentsvc.Completed, "done")
	}
	return w.end(agentsvc.InputRequired, "and?")
}

// until drains evs until the turn ends.
func until(t *testing.T, evs func(func(agentsvc.Event, error) bool)) (facts []agentsvc.Event) {
	t.Helper()
	for ev, err := range evs {
		if err != nil {
			t.Fatal(err)
		}
		facts = append(facts, ev)
		if ev.Status != nil && (ev.Status.State.Terminal() || ev.Status.State.Interrupted()) {
			break
		}
	}
	return facts
}

func call(t *testing.T, p *process, sub task.Submission) (agentsvc.Task, []agentsvc.Event) {
	t.Helper()
	got, evs, err := p.Call(within(t), sub)
	if err != nil {
		t.Fatal(err)
	}
	return got, until(t, evs)
}

// TestResume: the answer to a waiting task is a turn of its own, in the same context.
func TestResume(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, asks)
		opened, _ := call(t, p, send("hi"))
		elsewhere := answer(opened, "x")
		elsewhere.Message.Context = "other"
		var invalid *agentsvc.InvalidError
		if _, err := p.Submit(t.Context(), elsewhere); !errors.As(err, &invalid) {
			t.Errorf("an answer in another context: %v", err)
		}
		got, facts := call(t, p, answer(opened, "more"))
		p.told(t, opened.ID, 3, facts)
		if got.ID != opened.ID || got.Context != opened.Context || got.Status.State != agentsvc.Working || len(got.History) != 3 {
			t.Errorf("continued as %+v", got)
		}
		if facts[0].Message == nil || facts[0].Message.Text() != "more" || facts[0].Message.Role != agentsvc.RoleUser {
			t.Errorf("the turn begins with %+v", facts[0])
		}
		_, facts = call(t, p, answer(opened, "enough"))
		p.told(t, opened.ID, 6, facts)
		if _, err := p.Submit(t.Context(), answer(opened, "more")); !errors.Is(err, agentsvc.ErrTerminal) {
			t.Errorf("an answer to a task that has ended: %v", err)
		}
	})
}

// TestBusy: a task at work takes no message.
func TestBusy(t *testing.T) {
	t.Parallel()
	leave := make(chan struct{})
	p := start(t, dbtest.SQLite(t), func(w *work) error { <-leave; return asks(w) })
	defer close(leave)
	for _, sub := range []task.Submission{send("hi"), live(send("hi"))} {
		got, err := p.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Submit(t.Context(), answer(got, "x")); !errors.Is(err, agentsvc.ErrBusy) {
			t.Errorf("a message to a task that is %s: %v", got.Status.State, err)
		}
	}
}

// TestAnswersAtOnce: of many answers to one question one is taken; the others hear that the task is at work.
func TestAnswersAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		leave := make(chan struct{})
		p := start(t, d, func(w *work) error {
			if w.run.Turn > 1 {
				<-leave
			}
			return asks(w)
		})
		opened, _ := call(t, p, send("hi"))
		errs := make([]error, 10)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = p.Submit(context.Background(), live(answer(opened, fmt.Sprint(i)))) })
		}
		wg.Wait()
		taken := 0
		for i, err := range errs {
			if err == nil {
				taken++
			} else if !errors.Is(err, agentsvc.ErrBusy) {
				t.Errorf("answer %d: %v", i, err)
			}
		}
		if n := p.pool.Inflight(); taken != 1 || n > 1 {
			t.Errorf("%d answers taken, %d runs at work, want one", taken, n)
		}
		close(leave)
	})
}

// TestResend: sending the same message again changes nothing and shows the same turn; another body under its id is a
// conflict.
func TestResend(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, asks)
		first := send("hi")
		first.Message.ID, first.Message.Context = "m1", "c1"
		opened, _ := call(t, p, first)
		second := answer(opened, "more")
		second.Message.ID = "m2"
		_, facts := call(t, p, second)
		length := len(p.log(t, opened.ID))

		again, seen := call(t, p, first)
		if again.ID != opened.ID || len(seen) != 3 {
			t.Errorf("the first message again: task %s of %s, %d facts", again.ID, opened.ID, len(seen))
		}
		again, seen = call(t, p, second)
		if diff := cmp.Diff(facts, seen); again.ID != opened.ID || diff != "" {
			t.Errorf("the second message again: task %s of %s\n%s", again.ID, opened.ID, diff)
		}
		other := first
		other.Message.Parts = []agentsvc.Part{agentsvc.TextPart("other")}
		if _, err := p.Submit(t.Context(), other); !errors.Is(err, task.ErrConflict) {
			t.Errorf("another body under the first id: %v", err)
		}
		other = second
		other.Message.Parts = []agentsvc.Part{agentsvc.TextPart("other")}
		if _, err := p.Submit(t.Context(), other); !errors.Is(err, task.ErrConflict) {
			t.Errorf("another body under the second id: %v", err)
		}
		other = second
		other.Owner = bob
		if _, err := p.Submit(t.Context(), other); !errors.Is(err, agentsvc.ErrNotFound) {
			t.Errorf("another owner's answer: %v", err)
		}
		if n := len(p.log(t, opened.ID)); n != length {
			t.Errorf("the log grew from %d to %d", length, n)
		}
		call(t, p, answer(opened, "enough"))
		again, seen = call(t, p, second)
		if diff := cmp.Diff(facts, seen); again.Status.State != agentsvc.Completed || diff != "" {
			t.Errorf("the second message again, after the end: %s\n%s", again.Status.State, diff)
		}
		if n := p.pool.Inflight(); n != 0 {
			t.Errorf("%d runs are at work", n)
		}
		free := send("hi")
		free.Message.ID = "m1"
		one, err := p.Submit(t.Context(), free)
		if err != nil || one.ID == opened.ID {
			t.Fatalf("the same id without a context: %s (%v)", one.ID, err)
		}
		two, err := p.Submit(t.Context(), free)
		if err != nil || two.ID != one.ID {
			t.Errorf("and again: %s (%v), want %s", two.ID, err, one.ID)
		}
		free.Message.Parts = []agentsvc.Part{agentsvc.TextPart("other")}
		if three, err := p.Submit(t.Context(), free); err != nil || three.ID == one.ID {
			t.Errorf("another body without a context: %s (%v), want a new task", three.ID, err)
		}
	})
}

// TestInvalid: what cannot be accepted says which field is at fault, and leaves nothing.
func TestInvalid(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, asks)
		for field, m := range map[string]agentsvc.Message{
			"message.parts":      {},
			"message.message_id": {ID: "a\x00b", Parts: send("x").Message.Parts},
			"message.context_id": {Context: agentsvc.ContextID(strings.Repeat("x", 257)), Parts: send("x").Message.Parts},
		} {
			_, err := p.Submit(t.Context(), task.Submission{Agent: "assistant", Owner: ana, Live: true, Message: m})
			var invalid *agentsvc.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		odd := send("NUL \x00 and \xff")
		odd.Message.ID, odd.Message.Context = agentsvc.MessageID(strings.Repeat("é", 128)), agentsvc.ContextID(strings.Repeat("x", 256))
		if _, err := p.Submit(t.Context(), odd); err != nil {
			t.Errorf("odd text and long ids: %v", err)
		}
		page, err := p.List(t.Context(), task.Reach{}, task.Query{})
		if err != nil || page.Total != 1 {
			t.Errorf("%d tasks (%v), want 1", page.Total, err)
		}
	})
}

// TestFull: a caller who finds no place in this process waits for the queue.
func TestFull(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, asks)
		for {
			if _, ok := p.pool.Reserve("acme"); !ok {
				break
			}
			t.Cleanup(func() { p.pool.Release("acme") })
		}
		p.claims(t)
		got, facts := call(t, p, send("enough"))
		if got.Status.State != agentsvc.Submitted {
			t.Errorf("accepted as %s", got.Status.State)
		}
		p.told(t, got.ID, 0, facts)
		var states []string
		for _, ev := range facts {
			states = append(states, string(ev.Status.State))
		}
		if s := strings.Join(states, " "); s != "submitted working input_required" {
			t.Errorf("told %s", s)
		}
	})
}

// TestList: pages are whole and disjoint, and a token is good for its own query alone.
func TestList(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := start(t, d, asks)
		for i := range 7 {
			sub := send("hi")
			sub.Message.Context = agentsvc.ContextID(fmt.Sprint("c", i%2))
			if i == 6 {
				sub.Owner = bob
			}
			if _, err := p.Submit(t.Context(), sub); err != nil {
				t.Fatal(err)
			}
		}
		reach := task.Reach{Agents: []string{"assistant"}, Owner: &ana}
		q := task.Query{Size: 2}
		var ids []agentsvc.TaskID
		var token string
		for pages := 1; ; pages++ {
			page, err := p.List(t.Context(), reach, q)
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
			reach task.Reach
			q     task.Query
		}{
			"another owner":   {task.Reach{Agents: reach.Agents, Owner: &bob}, task.Query{Token: token}},
			"everyone":        {task.Reach{Agents: reach.Agents}, task.Query{Token: token}},
			"another agent":   {task.Reach{Agents: []string{"other"}, Owner: &ana}, task.Query{Token: token}},
			"another context": {reach, task.Query{Token: token, Context: "c0"}},
			"another state":   {reach, task.Query{Token: token, State: agentsvc.Working}},
			"cut":             {reach, task.Query{Token: token[:10]}},
			"changed":         {reach, task.Query{Token: token[:len(token)-2] + "AA"}},
			"no base64":       {reach, task.Query{Token: "%%%"}},
			"size 101":        {reach, task.Query{Size: 101}},
			"size -1":         {reach, task.Query{Size: -1}},
			"no state":        {reach, task.Query{State: "done"}},
			"odd context":     {reach, task.Query{Context: "a\x00"}},
		} {
			var invalid *agentsvc.InvalidError
			if _, err := p.List(t.Context(), c.reach, c.q); !errors.As(err, &invalid) {
				t.Errorf("%s: %v, want an invalid request", name, err)
			}
		}
		page, err := p.List(t.Context(), task.Reach{}, task.Query{Context: "c0", With: store.With{History: true}})
		if err != nil || page.Total != 4 || len(page.Tasks) != 4 || page.Next != "" || len(page.Tasks[0].History) != 1 {
			t.Errorf("a context of the whole app: %+v (%v)", page, err)
		}
		foreign := task.New(store.New(d, "globex"), "globex", 1, p.hub, p.pool, nil, task.Options{})
		if _, err := foreign.List(t.Context(), reach, task.Query{Size: 2, Token: token}); err == nil {
			t.Error("a token of another tenant is taken")
		}
	})
}
