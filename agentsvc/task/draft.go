package task

import (
	"slices"
	"strings"
	"unicode/utf8"

	"stoa/agentsvc"
)

const (
	// maxDrafts and maxDraftBytes bound the drafts of one task: their number, and the bytes of each. A longer draft
	// is dropped; its readers get the whole message with its fact.
	maxDrafts     = 8
	maxDraftBytes = 64 << 10
)

// draft is the text of an unfinished message so far, collected from its chunks for readers that subscribe later.
type draft struct {
	message  agentsvc.MessageID
	afterSeq int64 // sequence of the last fact before its last chunk
	// text only grows, so that copies of the draft may be read without topic.mu.
	text []byte
}

// drafts are the drafts of one task, the oldest first. topic.mu guards them.
type drafts []draft

// applyEvents updates the drafts: a chunk extends one, the fact with the whole message removes it, and the end or
// pause of a turn removes all.
func (ds *drafts) applyEvents(evs []agentsvc.Event) {
	for _, ev := range evs {
		switch st := ev.Status; {
		case ev.Chunk != nil:
			ds.appendChunk(*ev.Chunk)
		case ev.Message != nil:
			ds.removeDraft(ev.Message.ID)
		case st != nil && (st.State.IsTerminal() || st.State.IsInterrupted()):
			*ds = nil
		}
	}
}

// appendChunk appends the new part of a chunk to its draft. A chunk that leaves a gap is ignored, as is one whose
// text is known.
func (ds *drafts) appendChunk(c agentsvc.Chunk) {
	i := slices.IndexFunc(*ds, func(d draft) bool { return d.message == c.Message })
	if i < 0 {
		if c.Offset > 0 {
			return
		}
		if len(*ds) == maxDrafts {
			*ds = slices.Delete(*ds, 0, 1)
		}
		*ds = append(*ds, draft{message: c.Message})
		i = len(*ds) - 1
	}
	d := &(*ds)[i]
	switch had := len(d.text); {
	case c.Offset > had || c.Offset+len(c.Text) <= had:
		return
	case c.Offset+len(c.Text) > maxDraftBytes:
		ds.removeDraft(c.Message)
		return
	default:
		d.text = append(d.text, c.Text[had-c.Offset:]...)
		d.afterSeq = c.After
	}
}

// removeDraft removes the draft of a message, if there is one.
func (ds *drafts) removeDraft(m agentsvc.MessageID) {
	*ds = slices.DeleteFunc(*ds, func(d draft) bool { return d.message == m })
}

// toChunk returns the text of the draft from offset, at most maxBytes and not a part of a character, as a chunk.
func (d draft) toChunk(offset, maxBytes int) *agentsvc.Chunk {
	end := len(d.text)
	if end-offset > maxBytes {
		for end = offset + maxBytes; !utf8.RuneStart(d.text[end]) && end > offset+1; end-- {
		}
	}
	return &agentsvc.Chunk{Message: d.message, Offset: offset, Text: string(d.text[offset:end]), After: d.afterSeq}
}

// joinChunks returns the events with adjacent chunks of one message joined, so that a reader behind its writer catches up
// in few steps. It leaves evs as they are.
func joinChunks(evs []agentsvc.Event) (joined []agentsvc.Event) {
	for i := 0; i < len(evs); {
		ev, c := evs[i], evs[i].Chunk
		j := i + 1
		if c != nil {
			end := c.Offset + len(c.Text)
			for j < len(evs) && evs[j].Chunk != nil && evs[j].Chunk.Message == c.Message && evs[j].Chunk.Offset == end {
				end += len(evs[j].Chunk.Text)
				j++
			}
		}
		if j > i+1 {
			var text strings.Builder
			for _, next := range evs[i:j] {
				text.WriteString(next.Chunk.Text)
			}
			ev.Chunk = &agentsvc.Chunk{Message: c.Message, Offset: c.Offset, Text: text.String(), After: evs[j-1].Chunk.After}
		}
		joined = append(joined, ev)
		i = j
	}
	return joined
}
