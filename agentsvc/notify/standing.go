package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
)

// What a [Standing] address can be told of.
const (
	TaskStarted   = "task.started"   // an agent has begun to work on it
	TaskCompleted = "task.completed" // it has ended well
	TaskFailed    = "task.failed"    // it has ended in any other way
)

// StandingReceiver is an address that is told of all tasks of an agent, because the app's configuration says so. It is told as the
// configuration is when that happens, and not at all where that has no such address any more.
type StandingReceiver struct {
	ID         string
	URL        string
	Header     map[string]string
	Events     []string
	EncodeBody func(Notice) ([]byte, error) // nil = the notice in JSON

	MaxAttempts                int64         // of one event: after so many the next one has its turn
	InitialBackoff, MaxBackoff time.Duration // between two: the first pause, twice as long after each try, and at most
}

// Notice is what is told of a task. Its fields are those of the templates.
type Notice struct {
	Type      string `json:"type"`
	AgentName string `json:"agent_name"`
	TaskID    string `json:"task_id"`
	ContextID string `json:"context_id"`
	Status    string `json:"status"`
	Result    string `json:"result,omitempty"`
	Error     string `json:"error,omitempty"`
	Timestamp string `json:"timestamp"`
}

// standingFormat is the form of such addresses, but for what of it each of them says itself.
var standingFormat = Format{ShouldSend: func(ev agentsvc.Event) bool { return noticeType(ev) != "" }}

// noticeType names what a notice of an event tells of, "" = there is none. Of the events that a task is at work, only the one tells
// of its start that [isTaskStart] is true of.
func noticeType(ev agentsvc.Event) string {
	switch {
	case ev.Status == nil:
	case ev.Status.State == agentsvc.Working:
		return TaskStarted
	case ev.Status.State == agentsvc.Completed:
		return TaskCompleted
	case ev.Status.State.IsTerminal():
		return TaskFailed
	}
	return ""
}

// isTaskStart reports whether an agent begins with a task at an event: the first of its states after the one that opened it. What a
// task that goes on from another one's checkpoint has taken over stands on its log before that.
func isTaskStart(ctx context.Context, st *store.Store, ev agentsvc.Event) (bool, error) {
	if ev.Status == nil || ev.Status.State != agentsvc.Working {
		return false, nil
	}
	seq, err := st.FindSecondStatus(ctx, ev.Task)
	return seq == ev.Seq, err
}

// newNotice returns the notice of an event that has one.
func newNotice(t agentsvc.Task, ev agentsvc.Event) Notice {
	n := Notice{
		Type: noticeType(ev), AgentName: t.Agent, TaskID: string(t.ID), ContextID: string(t.Context), Status: string(ev.Status.State),
		Timestamp: ev.At.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
	content := ""
	if m := ev.Status.Message; m != nil {
		content = m.Text()
	}
	switch {
	case n.Type == TaskCompleted:
		n.Result = content
	case n.Type == TaskFailed && content == "":
		n.Error = "the task is " + n.Status
	case n.Type == TaskFailed:
		n.Error = content
	}
	return n
}

// composeNotice is what the standing address r is told of an event; nil = nothing, as the configuration is.
func (d *Notifier) composeNotice(r store.Receiver, t agentsvc.Task, ev agentsvc.Event) (*outgoingMessage, error) {
	all := d.options.StandingReceivers[t.Agent]
	i := slices.IndexFunc(all, func(s *StandingReceiver) bool { return s.ID == r.PublicID() })
	if i < 0 || !slices.Contains(all[i].Events, noticeType(ev)) {
		return nil, nil
	}
	s, n := all[i], newNotice(t, ev)
	m := &outgoingMessage{
		Address: Address{URL: s.URL, AppOwned: true}, header: s.Header, contentType: jsonContentType,
		retry: retryPolicy{maxAttempts: s.MaxAttempts, initialBackoff: s.InitialBackoff, maxBackoff: s.MaxBackoff},
	}
	var err error
	if s.EncodeBody == nil {
		m.body, err = json.Marshal(n)
	} else {
		m.body, err = s.EncodeBody(n)
	}
	switch {
	case err != nil:
		return m, &deliveryError{reason: fmt.Sprintf("its template makes no body: %.200v", err)}
	case !json.Valid(m.body):
		m.contentType = "text/plain; charset=utf-8"
	}
	return m, nil
}
