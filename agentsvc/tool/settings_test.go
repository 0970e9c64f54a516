package tool_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	tests := []struct {
		name       string
		settings   tool.Settings
		own        bool
		timeout    time.Duration
		idempotent bool
	}{
		{"none", tool.Settings{}, true, 5 * time.Second, true},
		{"time", tool.Settings{Timeout: time.Minute}, false, time.Minute, false},
		{"may run again", tool.Settings{Idempotent: &yes}, false, 5 * time.Second, true},
		{"may not", tool.Settings{Idempotent: &no}, true, 5 * time.Second, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				hang := fakeTool{name: "hang", idempotent: tt.own, call: func(ctx context.Context, _ tool.Call) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				}}
				s := newSet(t, tool.Options{Timeout: 5 * time.Second}, tool.WithSettings(hang, tt.settings))
				start := time.Now()
				got, _ := s.Call(t.Context(), agentsvc.RunScope{}, agentsvc.ToolCall{Name: "hang"}, "s")
				if time.Since(start) != tt.timeout || !strings.Contains(got.Text, "did not end within "+tt.timeout.String()) {
					t.Errorf("%q after %v, want %v", got.Text, time.Since(start), tt.timeout)
				}
				if s.IsIdempotent("hang") != tt.idempotent {
					t.Errorf("idempotent = %v", !tt.idempotent)
				}
			})
		})
	}
}
