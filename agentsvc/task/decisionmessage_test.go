package task_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/task"
)

// TestRulingsCopyNoText: ParseDecisions does not copy the texts of a message without decisions, which may be large.
func TestRulingsCopyNoText(t *testing.T) {
	m := agentsvc.Message{Parts: []agentsvc.Part{{Text: strings.Repeat("x", 4<<20)}, {Text: strings.Repeat("y", 4<<20)}}}
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if decisions, err := task.ParseDecisions(&m); err != nil || decisions != nil {
				b.Fatal(decisions, err)
			}
		}
	})
	if n := result.AllocedBytesPerOp(); n == 0 || n > 64<<10 {
		t.Errorf("a message of 8 MiB of text costs %d bytes", n)
	}
}

// TestDecisionParts: a decision that was built is parsed as it was, and its own comment precedes that of the message.
func TestDecisionParts(t *testing.T) {
	t.Parallel()
	approve := task.DecisionInput{Call: "c1", Outcome: agentsvc.OutcomeApproved}
	reject := task.DecisionInput{Call: "c2", Outcome: agentsvc.OutcomeRejected, Comment: "Too much."}
	m := agentsvc.Message{Task: "t", Parts: []agentsvc.Part{task.NewDecisionPart(approve), task.NewDecisionPart(reject), agentsvc.TextPart("Fine.")}}
	got, err := task.ParseDecisions(&m)
	approve.Comment = "Fine."
	if diff := cmp.Diff([]task.DecisionInput{approve, reject}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	m.Parts = []agentsvc.Part{{Data: &agentsvc.Data{Value: map[string]any{"type": "tool_approval", "decision": "approve", "comment": 1.0}}}}
	if _, err := task.ParseDecisions(&m); err == nil || err.Error() != "message.parts[0].data.comment: must be a text" {
		t.Errorf("a comment that is a number: %v", err)
	}
}

// TestReadQuestion: the decisions that a question requests are read from it, and nothing of other requests.
func TestReadQuestion(t *testing.T) {
	t.Parallel()
	want := agentsvc.Approval{Call: agentsvc.ToolCall{ID: "c1", Name: "adder", Arguments: json.RawMessage(`{"a":1}`)}, Frame: "assistant/helper", Prompt: "May I?"}
	credential := agentsvc.Approval{Kind: agentsvc.SupplyCredential, Credential: agentsvc.Credential{Tool: "locked"}}
	got := task.ReadQuestion(task.NewQuestion("t", []agentsvc.Approval{want, credential}))
	if diff := cmp.Diff([]agentsvc.Approval{want}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
