package agentsvc

import (
	"context"
	"slices"
)

// Session is a conversation of one owner: what was said in a context, in order.
type Session struct {
	Context ContextID
	Entries []Entry
}

// Entry is one line of a conversation: a message, or the result of a tool call that the agent's message before it
// asked for. Exactly one is set. Turn counts the turns of the session from 1; it is 0 for a turn that is under way. Quoted
// says that a caller vouches for the message, whoever is said to have spoken, and nobody else.
type Entry struct {
	Message *Message
	Result  *ToolResult
	Turn    int64
	Quoted  bool
}

// ExpandPriorMessages returns a conversation in which what messages say was said earlier stands before them.
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

// SessionKey names a session within its tenant.
type SessionKey struct {
	Owner   Owner
	Context ContextID
}

type sessionContextKey struct{}

// WithSession returns a context that knows whose turn is under way, and in which session.
func WithSession(ctx context.Context, key SessionKey) context.Context {
	return context.WithValue(ctx, sessionContextKey{}, key)
}

// SessionFromContext returns what [WithSession] put into ctx, and whether it did.
func SessionFromContext(ctx context.Context) (SessionKey, bool) {
	key, ok := ctx.Value(sessionContextKey{}).(SessionKey)
	return key, ok
}
