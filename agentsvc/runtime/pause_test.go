package runtime_test

import (
	"log/slog"
	"testing"

	"stoa/agentsvc/config"
	"stoa/agentsvc/config/document"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/runtime"
)

// TestLongPause checks that a pause beyond the bound is refused, with its path and the bound.
func TestLongPause(t *testing.T) {
	t.Parallel()
	src := `llms:
  default: {provider: scripted, script: [{then: [{say: one, pause: 10m}, {say: two, pause: 240h}]}]}
agents: {a: {}}
`
	_, err := runtime.Build(mustParse(t, src, config.Options{}), runtime.Tenant{ID: "acme"}, runtime.Dependencies{Host: runtime.Host{PublicEgress: egress.New(egress.Options{})}, Log: slog.New(slog.DiscardHandler)})
	const want = "2:92: llms.default.script[0].then[1].pause: is 240h0m0s; at most 10m0s"
	if got := document.AddPositions(err, "", []byte(src)); got == nil || got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
}
