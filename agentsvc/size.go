package agentsvc

// valueOverhead is about what a JSON value takes in memory beside its text.
const valueOverhead = 32

// ByteSize returns about how many bytes of text, files and data an event has, whatever it is.
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
	if ev.Chunk != nil {
		n += int64(len(ev.Chunk.Text))
	}
	return n
}

// ByteSize returns about how many bytes of text, files, data and arguments of calls a message has.
func (m Message) ByteSize() int64 {
	n := sizeOfParts(m.Parts)
	for _, c := range m.ToolCalls {
		n += int64(len(c.Arguments) + len(c.Thought))
	}
	return n
}

// ByteSize returns about how many bytes of text, files and data a task has, as far as it was read.
func (t Task) ByteSize() (n int64) {
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
