package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"stoa/tenancy/db/dbtest"
)

// BenchmarkRead measures read requests through the whole server: a page of tasks, one task, a card.
func BenchmarkRead(b *testing.B) {
	config := filepath.Join(b.TempDir(), "stoa.yaml")
	if err := os.WriteFile(config, []byte("llms: {m: {provider: scripted}}\nagents: {assistant: {llm: m}}\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	h := openServerWith(b, dbtest.NewPostgresURL(b), slog.New(slog.DiscardHandler), config)
	var sent taskAnswer
	for i := range 100 {
		h.requireStatus(b, http.StatusOK, &sent, "POST", "/agents/assistant", "", newRPCCall("message:send", newTextMessage(fmt.Sprint("hello ", i))))
	}
	for name, path := range map[string]string{"list": "/tasks", "get": "/tasks/" + sent.Result.TaskID, "card": "/.well-known/agent-card.json"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h.requireStatus(b, http.StatusOK, nil, "GET", "/v1/agents/assistant"+path, "", nil)
			}
		})
	}
}
