package agentsvc

import "slices"

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

// IsZero reports whether k identifies no session.
func (k SessionKey) IsZero() bool { return k == SessionKey{} }
