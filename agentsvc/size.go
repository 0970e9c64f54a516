package agentsvc

// valueBytes is about what a JSON value takes in memory beside its text.
const valueBytes = 32

// Bytes returns about how many bytes of text, files and data an event has, whatever it is.
func (ev Event) Bytes() (n int64) {
	if ev.Status != nil && ev.Status.Message != nil {
		n += ev.Status.Message.Bytes()
	}
	if ev.Message != nil {
		n += ev.Message.Bytes()
	}
	if ev.Artifact != nil {
		n += partsBytes(ev.Artifact.Artifact.Parts)
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

// Bytes returns about how many bytes of text, files, data and arguments of calls a message has.
func (m Message) Bytes() int64 {
	n := partsBytes(m.Parts)
	for _, c := range m.ToolCalls {
		n += int64(len(c.Arguments) + len(c.Thought))
	}
	return n
}

// Bytes returns about how many bytes of text, files and data a task has, as far as it was read.
func (t Task) Bytes() (n int64) {
	if t.Status.Message != nil {
		n += t.Status.Message.Bytes()
	}
	for _, m := range t.History {
		n += m.Bytes()
	}
	for _, a := range t.Artifacts {
		n += partsBytes(a.Parts)
	}
	for _, a := range t.Approvals {
		n += int64(len(a.Call.Arguments))
	}
	return n
}

func partsBytes(parts []Part) (n int64) {
	for _, p := range parts {
		n += int64(len(p.Text))
		if p.File != nil {
			n += int64(len(p.File.Bytes))
		}
		if p.Data != nil {
			n += dataBytes(p.Data.Value)
		}
	}
	return n
}

func dataBytes(v any) int64 {
	n := int64(valueBytes)
	switch v := v.(type) {
	case string:
		n += int64(len(v))
	case []any:
		for _, e := range v {
			n += dataBytes(e)
		}
	case map[string]any:
		for k, e := range v {
			n += int64(len(k)) + dataBytes(e)
		}
	}
	return n
}
