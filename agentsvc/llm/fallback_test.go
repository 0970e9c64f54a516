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
	file := agentsvc.Invalid("file", "is too large")
	good := step{chunks: []llm.Chunk{{Text: "b"}, {Stop: llm.StopEnd}}}
	tests := []struct {
		name   string
		first  step
		others []step
		text   string
		want   error
		asked  int // of the others
	}{
		{"first answers", step{chunks: []llm.Chunk{{Text: "a"}}}, []step{good}, "a", nil, 0},
		{"down", step{err: busy}, []step{good}, "b", nil, 1},
		{"refused", step{err: refused}, []step{good}, "b", nil, 1},
		{"second of two", step{err: busy}, []step{{err: refused}, good}, "b", nil, 2},
		{"all down", step{err: busy}, []step{{err: refused}, {err: file}}, "", busy, 2},
		{"a file", step{err: file}, []step{good}, "", file, 0},
		{"foreign error", step{err: errors.ErrUnsupported}, []step{good}, "", errors.ErrUnsupported, 0},
		{"begun", step{chunks: []llm.Chunk{{Text: "a"}}, err: busy}, []step{good}, "a", busy, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var others []llm.Provider
			for _, s := range tt.others {
				others = append(others, &provider{steps: []step{s}})
			}
			var text string
			var got error
			for c, err := range llm.Fallback(&provider{steps: []step{tt.first}}, others...).Stream(t.Context(), llm.Request{}) {
				text += c.Text
				got = err
			}
			asked := 0
			for _, p := range others {
				asked += p.(*provider).tries
			}
			if text != tt.text || !errors.Is(got, tt.want) || asked != tt.asked {
				t.Errorf("text %q, error %v, %d others asked; want %q, %v, %d", text, got, asked, tt.text, tt.want, tt.asked)
			}
		})
	}
}

func TestFallbackStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	other := &provider{steps: []step{{}}}
	var got error
	for _, err := range llm.Fallback(&provider{steps: []step{{err: &llm.Error{}}}}, other).Stream(ctx, llm.Request{}) {
		got = err
	}
	if !errors.Is(got, context.Canceled) || other.tries != 0 {
		t.Errorf("error %v after %d tries of the other; want the context's and none", got, other.tries)
	}
	alone := &provider{}
	if llm.Fallback(alone) != llm.Provider(alone) {
		t.Error("a model without others is not itself")
	}
}
