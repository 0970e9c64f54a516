package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// newSendProbes returns probes that send foreign messages of the versioned surface to paths.
func newSendProbes(paths ...string) (probes []isolationProbe) {
	for _, path := range paths {
		for _, written := range foreignV1Messages {
			probes = append(probes, isolationProbe{path: path, header: "agent-name", value: "assistant", body: written})
		}
	}
	return probes
}

// foreignV1Messages are messages of the versioned surface with foreign ids.
var foreignV1Messages = []func(x appIDs) any{
	func(x appIDs) any { return newV1TextMessage("mine now", "taskId", x.task) },
	func(x appIDs) any { return newV1TextMessage("recall", "contextId", x.context) },
	func(x appIDs) any { return newV1TextMessage("hello", "messageId", x.message, "contextId", x.context) },
	func(x appIDs) any {
		return newV1Message(map[string]any{"data": newDecisionData(x)}, "taskId", x.approvalTask)
	},
	func(x appIDs) any {
		return newV1Message(map[string]any{"data": newCredentialData("locked", "mine now")}, "taskId", x.credentialTask)
	},
}

// newV1TextMessage returns a blocking message of the versioned surface with text and further members.
func newV1TextMessage(text string, more ...any) map[string]any {
	return newV1Message(map[string]any{"text": text}, more...)
}

func newV1Message(part map[string]any, more ...any) map[string]any {
	m := map[string]any{"role": "user", "parts": []any{part}}
	for i := 0; i+1 < len(more); i += 2 {
		m[fmt.Sprint(more[i])] = more[i+1]
	}
	return map[string]any{"message": m, "configuration": map[string]any{"blocking": true}}
}

// probeWebSocket tries foreign ids over a WebSocket and expects the responses of ids that never existed.
func (ts *testServer) probeWebSocket(t *testing.T, token string, x appIDs) {
	t.Helper()
	for _, body := range foreignV1Messages {
		theirs, none := ts.sendOverWebSocket(t, token, body(x), x), ts.sendOverWebSocket(t, token, body(unknownIDs), unknownIDs)
		if theirs != none {
			t.Errorf("WebSocket %v: their id answers\n%s\none that never existed\n%s", body(x), theirs, none)
		}
	}
}

// sendOverWebSocket sends a message over a WebSocket and returns the frames of the response.
func (ts *testServer) sendOverWebSocket(t *testing.T, token string, body any, x appIDs) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, ts.url+"/v1/agents/assistant/stream", &websocket.DialOptions{Subprotocols: []string{"bearer." + token}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Write(ctx, websocket.MessageText, raw); err != nil {
		t.Fatal(err)
	}
	var frames strings.Builder
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(frame); strings.Contains(text, `"done":true`) {
			return normalizeAnswer(frames.String()+text, x)
		} else if strings.Contains(text, `"eventId"`) {
			frames.WriteString(text + "\n")
		}
	}
}
