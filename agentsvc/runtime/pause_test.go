package runtime_test

import (
	"testing"
)

// TestLongPause checks that a pause beyond the bound is refused, with its path and the bound.
func TestLongPause(t *testing.T) {
	t.Parallel()
	src := `llms:
  default: {provider: scripted, script: [{then: [{say: one, pause: 10m}, {say: two, pause: 240h}]}]}
agents: {a: {}}
`
	const want = "2:92: llms.default.script[0].then[1].pause: is 240h0m0s; at most 10m0s"
	if got := checkConfig(src); got == nil || got.Error() != want {
		t.Errorf("%v, want %s", got, want)
	}
}
