package runtime_test

import (
	"errors"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/task"
)

// TestBusy checks what each agent does with a message that arrives while its session has a turn in progress.
func TestBusy(t *testing.T) {
	t.Parallel()
	a := newExampleApp(t, "busy")
	for agent, c := range map[string]struct {
		err    error
		second agentsvc.State
		first  agentsvc.State
	}{
		"patient": {nil, agentsvc.Submitted, agentsvc.Working},
		"strict":  {agentsvc.ErrSessionBusy, "", agentsvc.Working},
		"eager":   {nil, agentsvc.Working, agentsvc.Cancelled},
	} {
		send := func(text string) (agentsvc.Task, error) {
			sub := newSubmissionFor(agent, text)
			sub.Awaited, sub.Message.Context = true, agentsvc.ContextID(agent)
			return a.Tasks().Messages.Submit(t.Context(), sub)
		}
		first, err := send("write a novel")
		if err != nil {
			t.Fatal(err)
		}
		second, err := send("just a line")
		if !errors.Is(err, c.err) || second.Status.State != c.second {
			t.Errorf("%s: the second message is %s (%v)", agent, second.Status.State, err)
		}
		if got, err := a.Tasks().Reader.Get(t.Context(), task.Visibility{}, first.ID, store.TaskParts{}); err != nil || got.Status.State != c.first {
			t.Errorf("%s: the first is %s (%v)", agent, got.Status.State, err)
		}
		for _, id := range []agentsvc.TaskID{second.ID, first.ID} {
			_, _ = a.Tasks().Canceller.Cancel(t.Context(), task.Visibility{}, id)
		}
	}
}
