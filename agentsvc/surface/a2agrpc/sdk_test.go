package a2agrpc_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/a2agrpc"
	"stoa/agentsvc/surface/surfacetest"
)

// TestJavaScript has the official client for JavaScript tell one story over every version and binding.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("STOA_TEST_A2A_SDK")
	if folder == "" {
		t.Skip("ATTENTION: without STOA_TEST_A2A_SDK (the folder that .ci/a2a-sdk prints) nobody saw the official client for JavaScript served")
	}
	h := houseOf(t, surfacetest.Script+"server: {push_notifications: true}\n", surface.Options{}, a2agrpc.Options{})
	cmd := exec.CommandContext(t.Context(), "node", "testdata/client.mjs", folder, h.URL+"/a2a/assistant/.well-known/agent-card.json",
		h.token(t, "acme", "ana"), h.token(t, "globex", "ana"))
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	told := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(told) != 6 {
		t.Fatalf("%d stories were told: %s", len(told), out)
	}
	for _, line := range told {
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		version, _ := got["version"].(string)
		want := map[string]any{
			"version": version, "binding": got["binding"],
			"send":      list("completed", "You said: hello"),
			"stream":    list("task submitted", "statusUpdate completed It is 21 degrees."),
			"get":       list("completed", "1", "It is 21 degrees."),
			"ask":       list("input_required", "Which city?", "completed", "You said: Rome"),
			"approve":   list("input_required", "completed", "It is 2."),
			"subscribe": list("task", "input_required", "canceled", "statusUpdate", "canceled", "true"),
			"push":      list("true told https://receiver.invalid/told Bearer", "true told https://receiver.invalid/told Bearer", "1", "0"),
			"card":      list("assistant", "true"),
			"errors":    list("TaskNotFoundError", "TaskNotCancelableError", "UnsupportedOperationError", "TaskNotFoundError", "TaskNotFoundError"),
		}
		if version == "1.0" {
			want["list"] = list("2", "some", "2", "more")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s over %s (-want +got):\n%s", version, got["binding"], diff)
		}
	}
}

func list(of ...string) []any {
	out := make([]any, len(of))
	for i, s := range of {
		out[i] = s
	}
	return out
}
