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
	"stoa/tenancy/db/dbtest"
)

// TestJavaScript runs the official client for JavaScript over every version and binding.
func TestJavaScript(t *testing.T) {
	t.Parallel()
	folder := os.Getenv("STOA_TEST_A2A_SDK")
	if folder == "" {
		dbtest.SkipMissing(t, "without STOA_TEST_A2A_SDK (the folder that .ci/a2a-sdk prints) the official client for JavaScript is not tested")
	}
	h := newFixtureWith(t, surfacetest.Script+"server: {push_notifications: true}\n", surface.Options{}, a2agrpc.Options{})
	cmd := exec.CommandContext(t.Context(), "node", "testdata/client.mjs", folder, h.URL+"/a2a/assistant/.well-known/agent-card.json",
		h.mintToken(t, "acme", "ana"), h.mintToken(t, "globex", "ana"))
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	reported := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(reported) != 6 {
		t.Fatalf("%d dialogues ran: %s", len(reported), out)
	}
	for _, line := range reported {
		var got map[string]any
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		version, _ := got["version"].(string)
		want := map[string]any{
			"version": version, "binding": got["binding"],
			"send":      newList("completed", "You said: hello"),
			"stream":    newList("task submitted", "statusUpdate completed It is 21 degrees."),
			"get":       newList("completed", "1", "It is 21 degrees."),
			"ask":       newList("input_required", "Which city?", "completed", "You said: Rome"),
			"approve":   newList("input_required", "completed", "It is 2."),
			"subscribe": newList("task", "input_required", "canceled", "statusUpdate", "canceled", "true"),
			"push":      newList("true told https://receiver.invalid/told Bearer", "true told https://receiver.invalid/told Bearer", "1", "0"),
			"card":      newList("assistant", "true", "bearer", "assistant", "assistant"),
			"errors":    newList("TaskNotFoundError", "TaskNotCancelableError", "UnsupportedOperationError", "TaskNotFoundError", "TaskNotFoundError"),
		}
		if version == "0.3" && got["binding"] == "HTTP+JSON" {
			// Here the client reads requirements in the form of the Protocol Buffers of 0.3, which no other client of 0.3 reads.
			want["card"] = newList("assistant", "true", "assistant", "assistant")
		}
		if version == "1.0" {
			want["list"] = newList("2", "some", "2", "more")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s over %s (-want +got):\n%s", version, got["binding"], diff)
		}
	}
}

func newList(of ...string) []any {
	out := make([]any, len(of))
	for i, s := range of {
		out[i] = s
	}
	return out
}
