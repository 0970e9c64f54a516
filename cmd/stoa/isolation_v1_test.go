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

// sendWalks says how a stranger would send messages of the versioned surface to paths.
func sendWalks(paths ...string) (walks []trespass) {
	for _, path := range paths {
		for _, said := range said {
			walks = append(walks, trespass{path: path, header: "agent-name", value: "assistant", body: said})
		}
	}
	return walks
}

// said are messages of the versioned surface that name somebody else's ids.
var said = []func(x minted) any{
	func(x minted) any { return spoken("mine now", "taskId", x.task) },
	func(x minted) any { return spoken("recall", "contextId", x.context) },
	func(x minted) any { return spoken("hello", "messageId", x.message, "contextId", x.context) },
	func(x minted) any { return parted(map[string]any{"data": ruling(x)}, "taskId", x.held) },
	func(x minted) any {
		return parted(map[string]any{"data": secretFor("locked", "mine now")}, "taskId", x.wanting)
	},
}

// spoken is a message of the versioned surface with text, whose answer is waited for, and what else is given of it.
func spoken(text string, more ...any) map[string]any {
	return parted(map[string]any{"text": text}, more...)
}

func parted(part map[string]any, more ...any) map[string]any {
	m := map[string]any{"role": "user", "parts": []any{part}}
	for i := 0; i+1 < len(more); i += 2 {
		m[fmt.Sprint(more[i])] = more[i+1]
	}
	return map[string]any{"message": m, "configuration": map[string]any{"blocking": true}}
}

// walkSocket tries the ids over a WebSocket and wants the answers of ids that never existed.
func (h *testHouse) walkSocket(t *testing.T, token string, x minted) {
	t.Helper()
	for _, body := range said {
		theirs, none := h.overSocket(t, token, body(x), x), h.overSocket(t, token, body(nobody), nobody)
		if theirs != none {
			t.Errorf("WebSocket %v: their id answers\n%s\none that never existed\n%s", body(x), theirs, none)
		}
	}
}

// overSocket sends a message over a WebSocket and returns the frames of its answer.
func (h *testHouse) overSocket(t *testing.T, token string, body any, x minted) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, h.url+"/v1/agents/assistant/stream", &websocket.DialOptions{Subprotocols: []string{"bearer." + token}})
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
			return neutral(frames.String()+text, x)
		} else if strings.Contains(text, `"eventId"`) {
			frames.WriteString(text + "\n")
		}
	}
}
