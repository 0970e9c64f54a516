package agentsvc

// valueOverhead is the assumed size of a decoded JSON value without its text, in bytes.
const valueOverhead = 32

// ByteSize returns the approximate number of bytes of texts, files and data in an event. It bounds queues and memory
// reservations.
func (ev Event) ByteSize() (n int64) {
	if ev.Status != nil && ev.Status.Message != nil {
		n += ev.Status.Message.ByteSize()
	}
	if ev.Message != nil {
		n += ev.Message.ByteSize()
	}
	if ev.Artifact != nil {
		n += sizeOfParts(ev.Artifact.Artifact.Parts)
	}
	if ev.Call != nil {
		n += int64(len(ev.Call.Arguments))
	}
	if ev.Result != nil {
		n += int64(len(ev.Result.Text))
	}
	if ev.Approval != nil {
		n += int64(len(ev.Approval.Call.Arguments))
	}
	if ev.Decision != nil {
		n += int64(len(ev.Decision.Arguments))
	}
	if ev.Sources != nil {
		for _, s := range ev.Sources.List {
			n += int64(len(s.Store) + len(s.Document) + len(s.Title) + len(s.Heading) + len(s.URL) + len(s.Quote))
		}
	}
	if ev.Attempt != nil {
		n += int64(len(ev.Attempt.Reason))
	}
	if ev.Chunk != nil {
		n += int64(len(ev.Chunk.Text))
	}
	return n
}

// ByteSize returns the approximate number of bytes of a message's texts, files, data and tool arguments.
func (m Message) ByteSize() int64 {
	n := sizeOfParts(m.Parts)
	for _, c := range m.ToolCalls {
		n += int64(len(c.Arguments) + len(c.Thought))
	}
	return n
}

// ByteSize returns the approximate number of bytes of the parts of a task that were read.
func (t Task) ByteSize() (n int64) {
	n += int64(len(t.Opening))
	if t.Status.Message != nil {
		n += t.Status.Message.ByteSize()
	}
	for _, m := range t.History {
		n += m.ByteSize()
	}
	for _, a := range t.Artifacts {
		n += sizeOfParts(a.Parts)
	}
	for _, a := range t.Approvals {
		n += int64(len(a.Call.Arguments))
	}
	return n
}

// sizeOfParts returns the approximate number of bytes of parts.
func sizeOfParts(parts []Part) (n int64) {
	for _, p := range parts {
		n += int64(len(p.Text))
		if p.File != nil {
			n += int64(len(p.File.Bytes))
		}
		if p.Data != nil {
			n += sizeOfValue(p.Data.Value)
		}
	}
	return n
}

// sizeOfValue returns the approximate memory of a decoded JSON value.
func sizeOfValue(v any) int64 {
	n := int64(valueOverhead)
	switch v := v.(type) {
	case string:
		n += int64(len(v))
	case []any:
		for _, e := range v {
			n += sizeOfValue(e)
		}
	case map[string]any:
		for k, e := range v {
			n += int64(len(k)) + sizeOfValue(e)
		}
	}
	return n
}
