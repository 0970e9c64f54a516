package contender_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"stoa/bench/contender"
	"stoa/bench/load"
)

func TestTargetIsAnswered(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(contender.Handler())
	t.Cleanup(srv.Close)
	target, err := contender.Target(srv.URL, "hello")
	if err != nil {
		t.Fatal(err)
	}
	got, err := load.Run(t.Context(), target, load.Options{Conns: 2, Calls: 20})
	if err != nil || got.Err != nil || got.Calls != 20 {
		t.Fatalf("Run = %d calls, %v, %v", got.Calls, got.Err, err)
	}
}

func TestTaskHasTheAnswer(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(contender.Handler())
	t.Cleanup(srv.Close)
	body := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Result struct {
			Task struct {
				Status struct {
					State   string
					Message struct{ Parts []struct{ Text string } }
				}
			}
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	status := answer.Result.Task.Status
	if status.State != "TASK_STATE_COMPLETED" || len(status.Message.Parts) != 1 || status.Message.Parts[0].Text != "You said: hello" {
		t.Errorf("status = %+v", status)
	}
}
