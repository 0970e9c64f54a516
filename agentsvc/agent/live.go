package agent

import (
	"slices"
	"strings"

	"stoa/agentsvc"
)

// live is what has been shown of a remote agent's answer while it was being written. A server may tell it in pieces, or
// each time as far as it has come, as messages or as artifacts; only the end says what the answer is.
type live struct {
	id      agentsvc.MessageID // of the answer, if it turns out to be what was shown
	said    []byte
	last    string // the message that was shown last, as its id and text
	pending *agentsvc.ArtifactUpdate
}

// maxPending bounds the bytes of an artifact's text that wait to be put on record together.
const maxPending = 16 << 10

// show passes text on.
func (v *visit) show(text string) error {
	if v.o.Whole || text == "" {
		return nil
	}
	c := agentsvc.Chunk{Message: v.id, Offset: len(v.said), Text: text}
	v.said = append(v.said, text...)
	if !v.yield(agentsvc.Event{Chunk: &c}, nil) {
		return errStopped
	}
	return nil
}

// news returns what a message tells that was not shown yet. It may hold all that was said before.
func (l *live) news(id, text string) string {
	key := id + "\x00" + text
	if key == l.last {
		return "" // the same as when it was asked for last
	}
	l.last = key
	if l.begins(text) {
		return text[len(l.said):]
	}
	return text
}

// begins reports whether text begins with what was shown.
func (l *live) begins(text string) bool {
	return len(text) >= len(l.said) && text[:len(l.said)] == string(l.said)
}

// of returns the id of an answer: that of what was shown, if the answer begins with it, else a new one.
func (l *live) of(answer string) agentsvc.MessageID {
	if l.begins(answer) {
		return l.id
	}
	return agentsvc.MessageID(agentsvc.NewID())
}

// record puts an update of an artifact on record, text that follows text together with it: a server may send it word by
// word.
func (v *visit) record(up agentsvc.ArtifactUpdate) error {
	if p := v.pending; p != nil && up.Append && up.Artifact.ID == p.Artifact.ID && !p.Last {
		p.Artifact.Parts = joined(p.Artifact.Parts, up.Artifact.Parts)
		p.Last = up.Last
	} else {
		if err := v.flush(); err != nil {
			return err
		}
		v.pending = &up
	}
	size := 0
	for _, p := range v.pending.Artifact.Parts {
		if !plainText(p) {
			return v.flush()
		}
		size += len(p.Text)
	}
	if v.pending.Last || size >= maxPending {
		return v.flush()
	}
	return nil
}

// flush puts on record what is pending.
func (v *visit) flush() error {
	p := v.pending
	if v.pending = nil; p != nil && !v.yield(agentsvc.Event{Artifact: p}, nil) {
		return errStopped
	}
	return nil
}

// joined appends more to parts, text to text.
func joined(parts, more []agentsvc.Part) []agentsvc.Part {
	parts = slices.Clone(parts)
	for _, p := range more {
		if n := len(parts) - 1; n >= 0 && plainText(p) && plainText(parts[n]) {
			parts[n].Text += p.Text
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

// beyond returns what whole, an artifact that grows, has beyond the parts that are known of it.
func beyond(known, whole []agentsvc.Part) []agentsvc.Part {
	whole = joined(nil, whole)
	n := len(known)
	if n > len(whole) {
		return nil
	}
	more := whole[n:]
	if n > 0 && plainText(known[n-1]) && plainText(whole[n-1]) {
		if rest, ok := strings.CutPrefix(whole[n-1].Text, known[n-1].Text); ok && rest != "" {
			more = slices.Insert(slices.Clone(more), 0, agentsvc.TextPart(rest))
		}
	}
	return more
}
