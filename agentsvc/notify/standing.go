package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/receiver"
)

// The types of notices that a [StandingReceiver] can select.
const (
	// TaskStarted: an agent has begun to work on the task.
	TaskStarted = "task.started"
	// TaskCompleted: the task has completed.
	TaskCompleted = "task.completed"
	// TaskFailed: the task has ended in any other state.
	TaskFailed = "task.failed"
)

// StandingReceiver is a receiver of all tasks of an agent, defined by the app's configuration. The configuration at the
// time of delivery decides: an event is not sent if the receiver has been removed from it.
type StandingReceiver struct {
	// ID is unique within an app's configuration. The receivers' rows refer to it.
	ID     string
	URL    string
	Header map[string]string
	// Events are the types of notices that it receives.
	Events []string
	// EncodeBody returns the body from the configured template; nil means the notice as JSON.
	EncodeBody func(context.Context, Notice) ([]byte, error)

	// MaxAttempts bounds the attempts for one event; after that the next event follows.
	MaxAttempts int64
	// InitialBackoff is the pause after the first attempt, which doubles up to MaxBackoff.
	InitialBackoff, MaxBackoff time.Duration
}

// Notice is the message about a task. Its fields are also those of the templates. Result is set for TaskCompleted,
// Error for TaskFailed.
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

// standingFormat is the format of standing receivers. Its EncodeBody is not used; composeNotice makes the body.
var standingFormat = Format{ShouldSend: func(ev agentsvc.Event) bool { return noticeType(ev) != "" }}

// noticeType returns the type of the notice for an event, "" if there is none. For the status working that is
// TaskStarted, which is sent only if isTaskStart.
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

// isTaskStart reports whether ev is the second status of the task: the first one opens the task, the second is the
// beginning of work. What a task took over from the checkpoint of another one is on its log before that.
func isTaskStart(ctx context.Context, st *store.Store, ev agentsvc.Event) (bool, error) {
	if ev.Status == nil || ev.Status.State != agentsvc.Working {
		return false, nil
	}
	seq, err := st.Tasks.FindSecondStatus(ctx, ev.Task)
	return seq == ev.Seq, err
}

// newNotice returns the notice of an event for which noticeType is not "".
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

// composeNotice returns the message for a standing receiver, nil if the configuration no longer has it or does not
// select the event.
func (not *Notifier) composeNotice(ctx context.Context, r receiver.Receiver, t agentsvc.Task, ev agentsvc.Event) (*outgoingMessage, error) {
	all := not.options.StandingReceivers[t.Agent]
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
		m.body, err = s.EncodeBody(ctx, n)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		// The event is skipped after MaxAttempts: a later notice may suit the template.
		return m, &deliveryError{reason: fmt.Sprintf("its template cannot be rendered: %.200v", err)}
	// A template may produce plain text.
	case !json.Valid(m.body):
		m.contentType = "text/plain; charset=utf-8"
	}
	return m, nil
}
