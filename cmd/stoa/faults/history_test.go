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

// next is the life of a task: what may follow each state. It is the contract's own table.
var next = map[string][]string{
	"":               {"submitted"},
	"submitted":      {"working", "rejected", "auth_required", "cancelled", "failed"},
	"working":        {"completed", "failed", "cancelled", "input_required", "rejected", "auth_required"},
	"input_required": {"working", "rejected", "cancelled", "failed"},
	"auth_required":  {"working", "cancelled", "failed"},
}

// history is what clients were told: each message that was sent, and the task that came of it where that was
// acknowledged. Every message's text ends with a word of its own, so that what is not its answer shows.
type history struct {
	mu   sync.Mutex
	sent []*sent
}

// sent is one message.
type sent struct {
	message
	task string // "" where nothing was acknowledged
}

func (h *history) add(m message, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, &sent{m, id})
}

// verdict is what a check of a history comes to.
type verdict struct {
	acknowledged, unknown int
	states                map[string]int
	faults                []string
}

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

func (v verdict) String() string {
	return fmt.Sprintf("%d messages acknowledged, %d unacknowledged, tasks %v, %d faults", v.acknowledged, v.unknown, v.states, len(v.faults))
}

// check waits until every acknowledged task has ended, at most for d beside what reading them takes, and holds the history
// against what there is: acknowledged is durable, unacknowledged is absent or whole, the states follow the table, one
// terminal event, no answer or event of another task, a sequence without gaps, at most one effect of a call that may not be
// repeated.
func (c *cluster) check(h *history, n *node, d time.Duration) {
	c.Helper()
	const reading = 50 * time.Millisecond // of one task
	ctx, cancel := context.WithTimeout(c.Context(), d+reading*time.Duration(len(h.sent)))
	defer cancel()
	v := verdict{states: map[string]int{}}
	owner := map[string]*sent{}
	for _, s := range h.sent {
		if s.task == "" {
			v.unknown++
			continue
		}
		v.acknowledged++
		if other := owner[s.task]; other != nil && other.id != s.id {
			v.fault("task %s answers two messages, %s and %s", s.task, other.id, s.id)
		}
		owner[s.task] = s
	}
	for id, s := range owner {
		c.checkTask(ctx, n, id, s, &v)
	}
	c.checkRows(owner, &v)
	say(c.T, "%v", v)
	for _, f := range v.faults[:min(len(v.faults), 20)] {
		c.Error(f)
	}
}

func (c *cluster) checkTask(ctx context.Context, n *node, id string, s *sent, v *verdict) {
	t, err := n.rest(ctx, s.agent, id)
	for err == nil && t.Status.State == "input_required" {
		if err = c.settle(ctx, n.client, t); err == nil {
			t, err = n.rest(ctx, s.agent, id)
		}
	}
	if err != nil {
		v.fault("task %s of %q was acknowledged: %v", id, s.text, err)
		return
	}
	v.states[t.Status.State]++
	log, err := n.log(ctx, s.agent, id)
	if err != nil {
		v.fault("the log of task %s: %v", id, err)
		return
	}
	state, last, ends := "", int64(0), 0
	for _, ev := range log {
		if ev.ended() {
			ends++
		}
		switch {
		case ev.TaskID != id:
			v.fault("the log of task %s tells of task %s", id, ev.TaskID)
		case ev.id <= last:
			v.fault("the log of task %s tells event %d after %d", id, ev.id, last)
		case ev.Status.State != "" && ev.Status.State != state && !slices.Contains(next[state], ev.Status.State):
			v.fault("task %s went from %q to %q", id, state, ev.Status.State)
		}
		last = max(last, ev.id)
		if ev.Status.State != "" {
			state = ev.Status.State
		}
	}
	if state != t.Status.State || ends != 1 {
		v.fault("task %s is %s and its log ends %d times, with %s", id, t.Status.State, ends, state)
	}
	word := s.text[strings.LastIndex(s.text, " ")+1:]
	if t.Status.State == "completed" && !strings.Contains(t.text(), word) {
		v.fault("task %s of %q was answered %q", id, s.text, t.text())
	}
	if !strings.HasPrefix(s.text, "repeat") {
		if n := c.tools.steps(id); n > 1 {
			v.fault("a call of task %s of %q had %d effects", id, s.text, n)
		}
	}
}

// settle decides as a human would who looks at the world first: what has taken effect is not to be done again.
func (c *cluster) settle(ctx context.Context, n *client, t task) error {
	waiting, err := n.approvals(ctx, t)
	for _, a := range waiting {
		verdict := "approve"
		if a.Kind == "rerun" && c.tools.steps(t.TaskID) > 0 {
			verdict = "reject"
		}
		if err := n.decide(ctx, verdict, t.TaskID, a.CallID); err != nil && statusOf(err) != http.StatusConflict {
			return err
		}
	}
	return err
}

// checkRows looks at what no client is shown: the whole sequence of each log, and the runs.
func (c *cluster) checkRows(owner map[string]*sent, v *verdict) {
	rows := c.sql(`SELECT t.id, t.seq, COUNT(e.seq), MIN(e.seq), MAX(e.seq),
		(SELECT COUNT(*) FROM run r WHERE r.tenant = t.tenant AND r.task = t.id)
		FROM task t LEFT JOIN event e ON e.tenant = t.tenant AND e.task = t.id GROUP BY t.tenant, t.id`)
	for _, r := range rows {
		id, seq, events, first, last, runs := r[0].(string), r[1].(int64), r[2].(int64), r[3], r[4], r[5].(int64)
		if events != seq || first != any(int64(1)) || last != any(seq) {
			v.fault("task %s stands at %d with %d events from %v to %v", id, seq, events, first, last)
		}
		if runs == 0 {
			v.fault("task %s has no run", id)
		}
		delete(owner, id)
	}
	for id := range owner {
		v.fault("task %s was acknowledged and has no row", id)
	}
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
