package llmtest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"stoa/agentsvc"
	"stoa/agentsvc/llm"
)

// UserConversation returns a conversation that ends with this user message, after an earlier exchange.
func UserConversation(text string) []agentsvc.Entry {
	return []agentsvc.Entry{
		newMessage(agentsvc.RoleUser, "earlier question"),
		newMessage(agentsvc.RoleAgent, "earlier answer"),
		newMessage(agentsvc.RoleUser, text),
	}
}

func newMessage(role agentsvc.Role, text string) agentsvc.Entry {
	return agentsvc.Entry{Message: &agentsvc.Message{
		ID: agentsvc.MessageID(agentsvc.NewID()), Role: role, Parts: []agentsvc.Part{agentsvc.TextPart(text)},
	}}
}

// Answer is the collected output of one call.
type Answer struct {
	Text   string
	Pieces int // chunks with text
	Calls  []agentsvc.ToolCall
	Usage  *agentsvc.Usage
	Stop   llm.StopReason
	Err    error
}

// CollectAnswer makes one call and collects its output. It fails the test if the order of the chunks violates
// [llm.Provider]: nothing follows the end, usage comes at most once, and there is a stop reason or an error.
func CollectAnswer(ctx context.Context, t *testing.T, p llm.Provider, conversation []agentsvc.Entry) Answer {
	t.Helper()
	return collectRequest(ctx, t, p, llm.Request{System: "Be brief.", Conversation: conversation, Tools: suiteTools, Step: "step-1"})
}

// collectRequest is [CollectAnswer] for any request.
func collectRequest(ctx context.Context, t *testing.T, p llm.Provider, req llm.Request) Answer {
	t.Helper()
	var a Answer
	for c, err := range p.Stream(ctx, req) {
		if a.Stop != "" || a.Err != nil {
			t.Errorf("%+v, %v was yielded after the end", c, err)
		}
		if err != nil {
			a.Err = err
			continue
		}
		if c.Text != "" {
			a.Pieces++
		}
		a.Text += c.Text
		if c.ToolCall != nil {
			a.Calls = append(a.Calls, *c.ToolCall)
		}
		if c.Usage != nil {
			if a.Usage != nil {
				t.Error("usage was yielded twice")
			}
			a.Usage = c.Usage
		}
		a.Stop = c.Stop
	}
	if a.Stop == "" && a.Err == nil {
		t.Error("the answer ended without a stop")
	}
	return a
}

// checkLeaks fails the test if it leaves goroutines behind.
func checkLeaks(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

// requireClosed fails the test if upstream requests are still open after 5 s.
func requireClosed(t *testing.T, s Subject) {
	t.Helper()
	if s.OpenRequests == nil {
		return
	}
	for range 500 {
		if s.OpenRequests() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d upstream requests are still open", s.OpenRequests())
}
