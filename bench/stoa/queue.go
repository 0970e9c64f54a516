package stoa

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"stoa/bench/load"
)

// Queued is one message:send that does not wait for its task.
func (s *Server) Queued(token, agent, text string) (load.Target, error) {
	return load.NewTarget(load.Spec{
		URL:    s.URL + "/agents/" + agent,
		Header: map[string]string{"Authorization": "Bearer " + token},
		Body:   unawaited(text),
		Want:   `"state"`,
	})
}

func unawaited(text string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"message:send","params":{"configuration":{"blocking":false},`+
		`"message":{"role":"user","parts":[{"type":"text","text":%q}]}}}`, text)
}

// ErrNoTimes is returned for a task whose log has no times of its acceptance and beginning.
var ErrNoTimes = errors.New("the task's log has no time of its beginning")

// PickUp sends a message, does not wait for its task, and returns how long the task lay until it was begun, by the times
// on its log.
func (s *Server) PickUp(ctx context.Context, token, agent, text string) (time.Duration, error) {
	var sent struct {
		Result struct {
			TaskID string `json:"task_id"`
		}
	}
	path := "/agents/" + agent
	if err := s.send(ctx, http.MethodPost, path, token, json.RawMessage(unawaited(text)), &sent); err != nil {
		return 0, err
	}
	log, err := s.read(ctx, path, token, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/subscribe","params":{"id":%q,"after":0}}`, sent.Result.TaskID))
	if err != nil {
		return 0, err
	}
	at := map[string]time.Time{}
	for line := range strings.Lines(log) {
		var ev struct {
			Status struct {
				State     string
				Timestamp time.Time
			}
		}
		body, ok := strings.CutPrefix(line, "data: ")
		if !ok || json.Unmarshal([]byte(body), &ev) != nil {
			continue
		}
		if _, seen := at[ev.Status.State]; !seen {
			at[ev.Status.State] = ev.Status.Timestamp
		}
	}
	if at["submitted"].IsZero() || at["working"].IsZero() {
		return 0, fmt.Errorf("%w: %.300s", ErrNoTimes, log)
	}
	return at["working"].Sub(at["submitted"]), nil
}
