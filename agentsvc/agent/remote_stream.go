package agent

import (
	"slices"
	"strings"

	"stoa/agentsvc"
)

// shownAnswer is the text of a remote agent's answer that has been shown as chunks. Servers stream in different ways:
// by pieces or by growing repetitions, in messages or in artifacts. The answer is known only at the end of the task; if
// it begins with the shown text, it gets the id of the chunks, else a new one.
type shownAnswer struct {
	// id is the message id of the chunks.
	id agentsvc.MessageID
	// shownText is the concatenated text of all chunks.
	shownText []byte
	// lastShown is the message shown last, as its id, a zero byte and its text. A poll returns the same message again.
	lastShown string
	// pendingArtifact is an update that is not yielded yet, because more text of the same artifact may follow.
	pendingArtifact *agentsvc.ArtifactUpdate
}

// maxPendingBytes bounds the bytes of text of a pending artifact. Joining updates up to it keeps a server that sends
// single words from writing one fact to the log for each.
const maxPendingBytes = 16 << 10

// showText yields text as a chunk at the end of the shown text.
func (r *remoteRun) showText(text string) error {
	if r.options.CompleteOnly || text == "" {
		return nil
	}
	c := agentsvc.Chunk{Message: r.id, Offset: len(r.shownText), Text: text}
	r.shownText = append(r.shownText, text...)
	if !r.yield(agentsvc.Event{Chunk: &c}, nil) {
		return errStopped
	}
	return nil
}

// unshownText returns the part of a status message's text that was not shown. Text that begins with everything shown so
// far is a growing repetition; any other text is a new piece.
func (a *shownAnswer) unshownText(id, text string) string {
	key := id + "\x00" + text
	if key == a.lastShown {
		return "" // a repeated snapshot
	}
	a.lastShown = key
	if a.hasShownPrefix(text) {
		return text[len(a.shownText):]
	}
	return text
}

// hasShownPrefix reports whether text begins with the shown text.
func (a *shownAnswer) hasShownPrefix(text string) bool {
	return len(text) >= len(a.shownText) && text[:len(a.shownText)] == string(a.shownText)
}

// answerID returns the id of the final answer: that of the chunks if answer begins with the shown text, else a new one,
// so that a client does not append the answer to unrelated text.
func (a *shownAnswer) answerID(answer string) agentsvc.MessageID {
	if a.hasShownPrefix(answer) {
		return a.id
	}
	return agentsvc.MessageID(agentsvc.NewID())
}

// recordArtifact yields an update of an artifact. Updates that append text are joined with the pending one; the result
// is yielded when it is large enough, has a part that is not text, is marked as the last, or another artifact follows.
func (r *remoteRun) recordArtifact(up agentsvc.ArtifactUpdate) error {
	if p := r.pendingArtifact; p != nil && up.Append && up.Artifact.ID == p.Artifact.ID && !p.Last {
		p.Artifact.Parts = joinParts(p.Artifact.Parts, up.Artifact.Parts)
		p.Last = up.Last
	} else {
		if err := r.flushArtifact(); err != nil {
			return err
		}
		r.pendingArtifact = &up
	}
	size := 0
	for _, p := range r.pendingArtifact.Artifact.Parts {
		if !isPlainText(p) {
			return r.flushArtifact()
		}
		size += len(p.Text)
	}
	if r.pendingArtifact.Last || size >= maxPendingBytes {
		return r.flushArtifact()
	}
	return nil
}

// flushArtifact yields the pending update, if any.
func (r *remoteRun) flushArtifact() error {
	p := r.pendingArtifact
	if r.pendingArtifact = nil; p != nil && !r.yield(agentsvc.Event{Artifact: p}, nil) {
		return errStopped
	}
	return nil
}

// joinParts returns parts followed by more, with adjacent text parts merged. It does not change its arguments.
func joinParts(parts, more []agentsvc.Part) []agentsvc.Part {
	parts = slices.Clone(parts)
	for _, p := range more {
		if n := len(parts) - 1; n >= 0 && isPlainText(p) && isPlainText(parts[n]) {
			parts[n].Text += p.Text
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

// diffParts returns the parts of complete, a later state of an artifact, beyond those already known. A grown text part
// contributes its new end. If complete is shorter than known, or its text was replaced, nothing of that is returned:
// updates can only append.
func diffParts(known, complete []agentsvc.Part) []agentsvc.Part {
	complete = joinParts(nil, complete)
	n := len(known)
	if n > len(complete) {
		return nil
	}
	more := complete[n:]
	if n > 0 && isPlainText(known[n-1]) && isPlainText(complete[n-1]) {
		if rest, ok := strings.CutPrefix(complete[n-1].Text, known[n-1].Text); ok && rest != "" {
			more = slices.Insert(slices.Clone(more), 0, agentsvc.TextPart(rest))
		}
	}
	return more
}
