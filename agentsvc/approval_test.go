package agentsvc_test

import (
	"encoding/json"
	"testing"

	"stoa/agentsvc"
)

func TestHashArguments(t *testing.T) {
	t.Parallel()
	same := []string{`{"a":1,"b":"<x>"}`, `{ "b": "\u003cx>", "a": 1 }`, "{\n\"a\":1,\"b\":\"\\u003cx\\u003e\"}"}
	for _, text := range same[1:] {
		if agentsvc.HashArguments(json.RawMessage(text)) != agentsvc.HashArguments(json.RawMessage(same[0])) {
			t.Errorf("%s is another than %s", text, same[0])
		}
	}
	if agentsvc.HashArguments(nil) != agentsvc.HashArguments(json.RawMessage("{}")) {
		t.Error("no arguments are others than none")
	}
	seen := map[string]string{}
	for _, text := range []string{`{}`, `{"a":1}`, `{"a":"1"}`, `{"a":10000000000000000000001}`, `{"a":10000000000000000000002}`, `{"a":`} {
		hash := agentsvc.HashArguments(json.RawMessage(text))
		if other, exists := seen[hash]; exists || len(hash) != 64 {
			t.Errorf("%s has the hash %q of %s", text, hash, other)
		}
		seen[hash] = text
	}
}

// TestApplyToCall: an approval lets a call run with the approved arguments and no others.
func TestApplyToCall(t *testing.T) {
	t.Parallel()
	requested, edited := json.RawMessage(`{"n":1}`), json.RawMessage(`{"n":2}`)
	for name, c := range map[string]struct {
		d    agentsvc.Decision
		want string
		ok   bool
	}{
		"approved":       {agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(requested)}, `{"n":1}`, true},
		"edited":         {agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Arguments: edited, Hash: agentsvc.HashArguments(edited)}, `{"n":2}`, true},
		"other than was": {agentsvc.Decision{Outcome: agentsvc.OutcomeApproved, Hash: agentsvc.HashArguments(edited)}, `{"n":1}`, false},
		"rejected":       {agentsvc.Decision{Outcome: agentsvc.OutcomeRejected, Hash: agentsvc.HashArguments(requested)}, `{"n":1}`, false},
		"nothing":        {agentsvc.Decision{}, `{"n":1}`, false},
	} {
		got, ok := c.d.ApplyToCall(agentsvc.ToolCall{ID: "c", Arguments: requested})
		if ok != c.ok || string(got.Arguments) != c.want {
			t.Errorf("%s: %v, %s", name, ok, got.Arguments)
		}
	}
}
