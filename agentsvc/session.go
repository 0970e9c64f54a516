package agentsvc

import (
	"context"
	"slices"
)

// Session is the conversation of one owner in one context, oldest entry first.
type Session struct {
	Context ContextID
	Entries []Entry
}

// Entry is one entry of a conversation: a message, or the result of a tool call that the agent's message before it
// made. Exactly one is set.
type Entry struct {
	Message *Message
	Result  *ToolResult
	// Turn is the position of the entry's turn in the session, from 1; 0 for the current turn.
	Turn int64
	// Quoted marks a message that only the caller vouches for (see [Message].PriorMessages), whatever its role.
	Quoted bool
}

// ExpandPriorMessages returns the conversation with each message's prior messages as entries before it.
func ExpandPriorMessages(entries []Entry) []Entry {
	hasPriorMessages := func(e Entry) bool { return e.Message != nil && len(e.Message.PriorMessages) > 0 }
	if !slices.ContainsFunc(entries, hasPriorMessages) {
		return entries
	}
	var out []Entry
	for _, e := range entries {
		if hasPriorMessages(e) {
			for i := range e.Message.PriorMessages {
				out = append(out, Entry{Message: &e.Message.PriorMessages[i], Turn: e.Turn, Quoted: true})
			}
		}
		out = append(out, e)
	}
	return out
}

// SessionKey identifies a session within its tenant.
type SessionKey struct {
	Owner   Owner
	Context ContextID
}

// sessionContextKey is the context key of WithSession.
type sessionContextKey struct{}

// WithSession returns a context that carries the session of the current turn, for example for tools that send its
// owner's credentials.
func WithSession(ctx context.Context, key SessionKey) context.Context {
	return context.WithValue(ctx, sessionContextKey{}, key)
}

// SessionFromContext returns the session that [WithSession] put into ctx; ok is false if there is none.
func SessionFromContext(ctx context.Context) (SessionKey, bool) {
	key, ok := ctx.Value(sessionContextKey{}).(SessionKey)
	return key, ok
}
