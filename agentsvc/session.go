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

// Unfold returns a conversation in which what messages say was said earlier stands before them.
func Unfold(entries []Entry) []Entry {
	quotes := func(e Entry) bool { return e.Message != nil && len(e.Message.Earlier) > 0 }
	if !slices.ContainsFunc(entries, quotes) {
		return entries
	}
	var out []Entry
	for _, e := range entries {
		if quotes(e) {
			for i := range e.Message.Earlier {
				out = append(out, Entry{Message: &e.Message.Earlier[i], Turn: e.Turn, Quoted: true})
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

type sessionKey struct{}

// WithSession returns a context that knows whose turn is under way, and in which session.
func WithSession(ctx context.Context, key SessionKey) context.Context {
	return context.WithValue(ctx, sessionKey{}, key)
}

// SessionOf returns what [WithSession] put into ctx, and whether it did.
func SessionOf(ctx context.Context) (SessionKey, bool) {
	key, ok := ctx.Value(sessionKey{}).(SessionKey)
	return key, ok
}
