package main

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// TestNoRecovery kills a process during a task whose app has recovery disabled: the task fails with a reason.
func TestNoRecovery(t *testing.T) {
	t.Parallel()
	onEachProcessDatabase(t, func(t *testing.T, dir, database string) {
		args := []string{"--database", database, "--queue-stale-threshold", "1s"}
		first := startProcess(t, dir, args...)
		first.createApp(t, "acme", fmt.Sprintf(slowApp, "acme")+"\nstorage: {checkpoint: {recovery: {auto_resume: false}}}\n")
		token := first.createToken(t, "acme", "ana", nil)
		var sent taskAnswer
		first.requireStatus(t, http.StatusOK, &sent, "POST", "/agents/assistant", token,
			map[string]any{"jsonrpc": "2.0", "id": 1, "method": "message:send", "params": map[string]any{
				"message":       map[string]any{"role": "user", "parts": []any{map[string]any{"type": "text", "text": "slow please"}}},
				"configuration": map[string]any{"blocking": false},
			}})
		get := newRPCCall("tasks/get", map[string]any{"id": sent.Result.TaskID})
		var got taskAnswer
		dbtest.WaitUntil(t, "the task is at work", func() bool {
			first.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", token, get)
			return got.Result.Status.State == "working"
		})
		_ = first.SignalAndWait(syscall.SIGKILL)
		second := startProcess(t, dir, args...)
		dbtest.WaitUntil(t, "the task failed", func() bool {
			second.requireStatus(t, http.StatusOK, &got, "POST", "/agents/assistant", token, get)
			return got.Result.Status.State == "failed"
		})
		if want := "does not allow interrupted tasks to continue"; !strings.Contains(got.statusText(), want) {
			t.Errorf("the task says %q, want %q in it", got.statusText(), want)
		}
	})
}
