package llm_test

import (
	"testing"
	"testing/synctest"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// TestUsageOfAttempts checks that the usage of an answer reports the requests and the model that failed before it, and
// that the model's own value stays as it is.
func TestUsageOfAttempts(t *testing.T) {
	t.Parallel()
	busy := &llm.Error{Provider: "a", Status: 503, Retryable: true}
	for _, tt := range []struct {
		name             string
		failures, others int
		retries          int64
		fallback         bool
	}{
		{"at once", 0, 0, 0, false},
		{"after two requests", 2, 0, 2, false},
		{"another model", 3, 1, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				reported := agentsvc.Usage{InputTokens: 7}
				answer := scriptedAttempt{chunks: []llm.Chunk{{Text: "b"}, {Usage: &reported, Stop: llm.StopEnd}}}
				first := &scriptedProvider{}
				for range tt.failures {
					first.attempts = append(first.attempts, scriptedAttempt{err: busy})
				}
				first.attempts = append(first.attempts, answer)
				var others []llm.Provider
				for range tt.others {
					others = append(others, &scriptedProvider{attempts: []scriptedAttempt{answer}})
				}
				var got agentsvc.Usage
				for c, err := range llm.WithFallback(llm.WithRetry(first), others...).Stream(t.Context(), llm.Request{}) {
					if err != nil {
						t.Fatal(err)
					}
					if c.Usage != nil {
						got = *c.Usage
					}
				}
				if got.Retries != tt.retries || got.Fallback != tt.fallback || got.InputTokens != 7 || reported.Retries != 0 || reported.Fallback {
					t.Errorf("%+v, reported %+v", got, reported)
				}
			})
		})
	}
}
