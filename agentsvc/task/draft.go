package task

import (
	"slices"
	"strings"

	"stoa/agentsvc"
)

const (
	// maxDrafts and maxDraftBytes bound what is kept of messages that are being written: how many of a task, and how many
	// bytes of each. Of a longer one nothing is kept.
	maxDrafts     = 8
	maxDraftBytes = 64 << 10
)

// draft is a message that is being written, as far as it has come.
type draft struct {
	message  agentsvc.MessageID
	afterSeq int64 // the last fact before its last chunk
	text     []byte
}

// drafts are those of a task, the oldest first.
type drafts []draft

// applyEvents follows what is added to the task: chunks grow a draft, the fact that holds the whole message ends it.
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

func (ds *drafts) removeDraft(m agentsvc.MessageID) {
	*ds = slices.DeleteFunc(*ds, func(d draft) bool { return d.message == m })
}

// toChunk is all of the draft in one piece.
func (d draft) toChunk() *agentsvc.Chunk {
	return &agentsvc.Chunk{Message: d.message, Text: string(d.text), After: d.afterSeq}
}

// mergeChunks joins chunks that follow each other, so that a reader behind its writer catches up in one step.
func mergeChunks(evs []agentsvc.Event) []agentsvc.Event {
	out := evs[:0]
	for i := 0; i < len(evs); {
		c := evs[i].Chunk
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
			for _, ev := range evs[i:j] {
				text.WriteString(ev.Chunk.Text)
			}
			evs[i].Chunk = &agentsvc.Chunk{Message: c.Message, Offset: c.Offset, Text: text.String(), After: evs[j-1].Chunk.After}
		}
		out = append(out, evs[i])
		i = j
	}
	return out
}
