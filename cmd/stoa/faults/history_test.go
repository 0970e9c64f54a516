package faults_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// nextStates are the allowed transitions of a task's state. The table is written by hand from the specification and
// not taken from the product.
var nextStates = map[string][]string{
	"":               {"submitted"},
	"submitted":      {"working", "rejected", "auth_required", "cancelled", "failed"},
	"working":        {"completed", "failed", "cancelled", "input_required", "rejected", "auth_required"},
	"input_required": {"working", "rejected", "cancelled", "failed"},
	"auth_required":  {"working", "cancelled", "failed"},
}

// history is what clients received: each message sent, and its task if it was acknowledged. Every message's text
// ends with a unique word, so that the answer to another message is detected.
type history struct {
	mu       sync.Mutex
	messages []*sentMessage
}

// sentMessage is one message of a history.
type sentMessage struct {
	message
	task string // "" = not acknowledged
}

func (h *history) addMessage(m message, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, &sentMessage{m, id})
}

func (h *history) countMessages() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.messages)
}

// checkResult is the result of checking a history.
type checkResult struct {
	acknowledged, unknown int
	states                map[string]int
	faults                []string
}

func (r *checkResult) addFault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

func (r checkResult) String() string {
	return fmt.Sprintf("%d messages acknowledged, %d unacknowledged, tasks %v, %d faults", r.acknowledged, r.unknown, r.states, len(r.faults))
}

// checkHistory waits until every acknowledged task has ended, at most for d in addition to the time of reading them,
// and checks the history against the tasks: acknowledged messages are durable, others absent or complete, states
// follow nextStates, one terminal event, no answer or event of another task, a sequence without gaps, at most one
// effect of a call that is not idempotent.
func (c *cluster) checkHistory(h *history, n *node, d time.Duration) {
	c.Helper()
	const reading = 50 * time.Millisecond // for each task
	ctx, cancel := context.WithTimeout(c.Context(), d+reading*time.Duration(len(h.messages)))
	defer cancel()
	v := checkResult{states: map[string]int{}}
	owner := map[string]*sentMessage{}
	for _, s := range h.messages {
		if s.task == "" {
			v.unknown++
			continue
		}
		v.acknowledged++
		if other := owner[s.task]; other != nil && other.id != s.id {
			v.addFault("task %s answers two messages, %s and %s", s.task, other.id, s.id)
		}
		owner[s.task] = s
	}
	for id, s := range owner {
		c.checkTask(ctx, n, id, s, &v)
	}
	c.checkRows(owner, &v)
	reportf(c.T, "%v", v)
	for _, f := range v.faults[:min(len(v.faults), 20)] {
		c.Error(f)
	}
}

func (c *cluster) checkTask(ctx context.Context, n *node, id string, s *sentMessage, v *checkResult) {
	t, err := n.waitSettled(ctx, s.agent, id)
	for err == nil && t.Status.State == "input_required" {
		if err = c.decideApprovals(ctx, n.client, t); err == nil {
			t, err = n.waitSettled(ctx, s.agent, id)
		}
	}
	if err != nil {
		v.addFault("task %s of %q was acknowledged: %v", id, s.text, err)
		return
	}
	v.states[t.Status.State]++
	log, err := n.readLog(ctx, s.agent, id)
	if err != nil {
		v.addFault("the log of task %s: %v", id, err)
		return
	}
	state, last, ends := "", int64(0), 0
	for _, ev := range log {
		if ev.isTerminal() {
			ends++
		}
		switch {
		case ev.TaskID != id:
			v.addFault("the log of task %s tells of task %s", id, ev.TaskID)
		case ev.id <= last:
			v.addFault("the log of task %s tells event %d after %d", id, ev.id, last)
		case ev.Status.State != "" && ev.Status.State != state && !slices.Contains(nextStates[state], ev.Status.State):
			v.addFault("task %s went from %q to %q", id, state, ev.Status.State)
		}
		last = max(last, ev.id)
		if ev.Status.State != "" {
			state = ev.Status.State
		}
	}
	if state != t.Status.State || ends != 1 {
		v.addFault("task %s is %s and its log ends %d times, with %s", id, t.Status.State, ends, state)
	}
	word := s.text[strings.LastIndex(s.text, " ")+1:]
	if t.Status.State == "completed" && !strings.Contains(t.lastText(), word) {
		v.addFault("task %s of %q was answered %q", id, s.text, t.lastText())
	}
	if !strings.HasPrefix(s.text, "repeat") {
		if n := c.tools.maxEffectsPerCall(id); n > 1 {
			v.addFault("a call of task %s of %q had %d effects", id, s.text, n)
		}
	}
}

// decideApprovals decides like a human who checks the effects first: a call that has taken effect is rejected.
func (c *cluster) decideApprovals(ctx context.Context, n *client, t task) error {
	waiting, err := n.listApprovals(ctx, t)
	for _, a := range waiting {
		outcome := "approve"
		if a.Kind == "rerun" && c.tools.maxEffectsPerCall(t.TaskID) > 0 {
			outcome = "reject"
		}
		if err := n.decideCall(ctx, outcome, t.TaskID, a.CallID); err != nil && statusOf(err) != http.StatusConflict {
			return err
		}
	}
	return err
}

// checkRows checks what the API does not show: the complete sequence of each log, and the runs.
func (c *cluster) checkRows(owner map[string]*sentMessage, v *checkResult) {
	rows := c.querySQL(`SELECT t.id, t.seq, COUNT(e.seq), MIN(e.seq), MAX(e.seq),
		(SELECT COUNT(*) FROM run r WHERE r.tenant = t.tenant AND r.task = t.id)
		FROM task t LEFT JOIN event e ON e.tenant = t.tenant AND e.task = t.id GROUP BY t.tenant, t.id`)
	for _, r := range rows {
		id, seq, events, first, last, runs := r[0].(string), r[1].(int64), r[2].(int64), r[3], r[4], r[5].(int64)
		if events != seq || first != any(int64(1)) || last != any(seq) {
			v.addFault("task %s stands at %d with %d events from %v to %v", id, seq, events, first, last)
		}
		if runs == 0 {
			v.addFault("task %s has no run", id)
		}
		delete(owner, id)
	}
	for id := range owner {
		v.addFault("task %s was acknowledged and has no row", id)
	}
}

// sleepContext sleeps unless ctx ends first.
func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
