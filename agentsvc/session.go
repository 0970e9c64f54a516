package agentsvc

// Session is a conversation of one owner: what was said in a context, in order.
type Session struct {
	Context ContextID
	Entries []Entry
}

// Entry is one line of a conversation: a message, or the result of a tool call that the agent's message before it
// asked for. Exactly one is set.
type Entry struct {
	Message *Message
	Result  *ToolResult
}
