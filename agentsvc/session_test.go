package agentsvc_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
)

func TestExpandPriorMessages(t *testing.T) {
	t.Parallel()
	newMessage := func(role agentsvc.Role, text string, earlier ...agentsvc.Message) agentsvc.Message {
		return agentsvc.Message{Role: role, Parts: []agentsvc.Part{agentsvc.TextPart(text)}, PriorMessages: earlier}
	}
	first, second := newMessage(agentsvc.RoleUser, "first"), newMessage(agentsvc.RoleAgent, "second")
	third, fourth := newMessage(agentsvc.RoleUser, "third", first, second), newMessage(agentsvc.RoleAgent, "fourth")
	result := agentsvc.ToolResult{Text: "2"}
	got := agentsvc.ExpandPriorMessages([]agentsvc.Entry{{Message: &third, Turn: 1}, {Result: &result, Turn: 1}, {Message: &fourth, Turn: 1}})
	want := []agentsvc.Entry{
		{Message: &first, Turn: 1, Quoted: true}, {Message: &second, Turn: 1, Quoted: true},
		{Message: &third, Turn: 1}, {Result: &result, Turn: 1}, {Message: &fourth, Turn: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
