package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"stoa/agentsvc/store"
	"stoa/cmd/stoa/server"
)

// TestStoredBytes checks that an app at its storage limit is refused in every protocol with the remedy in the error,
// that other apps are not, and that the app is accepted again once its retention has deleted something.
func TestStoredBytes(t *testing.T) {
	t.Parallel()
	database := "sqlite://" + filepath.Join(t.TempDir(), "stoa.db")
	port, host, shutdownTimeout, most := 0, "127.0.0.1", time.Duration(0), int64(400_000)
	line := server.Flags{Database: &database, Port: &port, Host: &host, ShutdownTimeout: &shutdownTimeout, AppStoredBytes: &most}
	opened, err := openFlaggedServer(t, line, newTestLog(t), exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	h := startTestServer(t, opened)
	h.createApp(t, "acme", quietApp)
	h.createApp(t, "globex", quietApp)
	ana, ben := h.createToken(t, "acme", "ana", nil), h.createToken(t, "globex", "ben", nil)
	text, status, answer := strings.Repeat("x", 50_000), http.StatusOK, ""
	for range 50 {
		if status, answer = h.doRequest(t, "POST", "/agents/a", ana, newRPCCall("message/send", newTextMessage(text))); status != http.StatusOK {
			break
		}
	}
	if status != http.StatusTooManyRequests {
		t.Fatalf("50 messages of 50 kB where an app may store 400 kB: %d %.300s", status, answer)
	}
	camel := map[string]any{"message": map[string]any{"messageId": "m1", "role": "user", "parts": []any{map[string]any{"kind": "text", "text": text}}}}
	for path, body := range map[string]any{
		"/agents/a":                   newRPCCall("message/send", newTextMessage(text)),
		"/v1/agents/a/message:send":   camel,
		"/a2a/a":                      newRPCCall("message/send", camel),
		"/mcp/a":                      newRPCCall("tools/call", map[string]any{"name": "a", "arguments": map[string]any{"message": text}}),
		"/openai/v1/chat/completions": map[string]any{"model": "a", "messages": []any{map[string]any{"role": "user", "content": text}}},
		"/openai/v1/responses":        map[string]any{"model": "a", "input": text},
	} {
		if status, answer := h.doRequest(t, "POST", path, ana, body); status != http.StatusTooManyRequests || !strings.Contains(answer, "storage.retention") {
			t.Errorf("%s: %d %.300s, want 429 and what helps", path, status, answer)
		}
	}
	_, err = callGRPC(t, h.dialGRPC(t), ana, service10+"SendMessage", `{"message": {"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "`+text+`"}]}}`, "a")
	if got := grpcstatus.Convert(err); got.Code() != codes.ResourceExhausted || !strings.Contains(got.Message(), "storage.retention") {
		t.Errorf("over gRPC: %v", err)
	}
	if n := h.Storage.Quota.RefusedWrites(); n < 8 {
		t.Errorf("%d writes are counted as refused, want 8", n)
	}
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/a", ben, newRPCCall("message/send", newTextMessage(text)))

	acme, err := h.apps.LoadApp(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.New(h.db, acme.ID).Sweeper.SweepExpired(t.Context(), store.Retention{Tasks: time.Nanosecond, Sessions: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if err := h.Storage.Quota.MeasureTenant(t.Context(), acme.ID); err != nil {
		t.Fatal(err)
	}
	h.requireStatus(t, http.StatusOK, nil, "POST", "/agents/a", ana, newRPCCall("message/send", newTextMessage(text)))
}
