package llm_test

import (
	"context"
	"errors"
	"testing"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

func TestFallback(t *testing.T) {
	t.Parallel()
	busy := &llm.Error{Provider: "a", Status: 503, Retryable: true}
	refused := &llm.Error{Provider: "a", Status: 401}
	file := agentsvc.NewInvalidError("file", "is too large")
	good := scriptedAttempt{chunks: []llm.Chunk{{Text: "b"}, {Stop: llm.StopEnd}}}
	tests := []struct {
		name   string
		first  scriptedAttempt
		others []scriptedAttempt
		text   string
		want   error
		asked  int // of the others
	}{
		{"first answers", scriptedAttempt{chunks: []llm.Chunk{{Text: "a"}}}, []scriptedAttempt{good}, "a", nil, 0},
		{"down", scriptedAttempt{err: busy}, []scriptedAttempt{good}, "b", nil, 1},
		{"refused", scriptedAttempt{err: refused}, []scriptedAttempt{good}, "b", nil, 1},
		{"second of two", scriptedAttempt{err: busy}, []scriptedAttempt{{err: refused}, good}, "b", nil, 2},
		{"all down", scriptedAttempt{err: busy}, []scriptedAttempt{{err: refused}, {err: file}}, "", busy, 2},
		{"a file", scriptedAttempt{err: file}, []scriptedAttempt{good}, "", file, 0},
		{"foreign error", scriptedAttempt{err: errors.ErrUnsupported}, []scriptedAttempt{good}, "", errors.ErrUnsupported, 0},
		{"begun", scriptedAttempt{chunks: []llm.Chunk{{Text: "a"}}, err: busy}, []scriptedAttempt{good}, "a", busy, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var others []llm.Provider
			for _, s := range tt.others {
				others = append(others, &scriptedProvider{attempts: []scriptedAttempt{s}})
			}
			var text string
			var got error
			for c, err := range llm.WithFallback(&scriptedProvider{attempts: []scriptedAttempt{tt.first}}, others...).Stream(t.Context(), llm.Request{}) {
				text += c.Text
				got = err
			}
			otherCalls := 0
			for _, p := range others {
				otherCalls += p.(*scriptedProvider).calls
			}
			if text != tt.text || !errors.Is(got, tt.want) || otherCalls != tt.asked {
				t.Errorf("text %q, error %v, %d others asked; want %q, %v, %d", text, got, otherCalls, tt.text, tt.want, tt.asked)
			}
		})
	}
}

func TestFallbackStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other := &scriptedProvider{attempts: []scriptedAttempt{{}}}
	var got error
	for _, err := range llm.WithFallback(&scriptedProvider{attempts: []scriptedAttempt{{err: &llm.Error{}}}}, other).Stream(ctx, llm.Request{}) {
		got = err
	}
	if !errors.Is(got, context.Canceled) || other.calls != 0 {
		t.Errorf("error %v after %d tries of the other; want the context's and none", got, other.calls)
	}
	single := &scriptedProvider{}
	if llm.WithFallback(single) != llm.Provider(single) {
		t.Error("a model without others is not itself")
	}
}
