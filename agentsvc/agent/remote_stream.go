package agent

import (
	"slices"
	"strings"

	"stoa/agentsvc"
)

// shownAnswer is what has been shown of a remote agent's answer while it was being written. A server may tell it in pieces, or
// each time as far as it has come, as messages or as artifacts; only the end says what the answer is.
type shownAnswer struct {
	id              agentsvc.MessageID // of the answer, if it turns out to be what was shown
	shownText       []byte
	lastShown       string // the message that was shown last, as its id and text
	pendingArtifact *agentsvc.ArtifactUpdate
}

// maxPendingBytes bounds the bytes of an artifact's text that wait to be put on record together.
const maxPendingBytes = 16 << 10

// showText passes text on.
func (v *remoteRun) showText(text string) error {
	if v.options.CompleteOnly || text == "" {
		return nil
	}
	c := agentsvc.Chunk{Message: v.id, Offset: len(v.shownText), Text: text}
	v.shownText = append(v.shownText, text...)
	if !v.yield(agentsvc.Event{Chunk: &c}, nil) {
		return errStopped
	}
	return nil
}

// unshownText returns what a message tells that was not shown yet. It may hold all that was said before.
func (l *shownAnswer) unshownText(id, text string) string {
	key := id + "\x00" + text
	if key == l.lastShown {
		return "" // the same as when it was asked for last
	}
	l.lastShown = key
	if l.hasShownPrefix(text) {
		return text[len(l.shownText):]
	}
	return text
}

// hasShownPrefix reports whether text begins with what was shown.
func (l *shownAnswer) hasShownPrefix(text string) bool {
	return len(text) >= len(l.shownText) && text[:len(l.shownText)] == string(l.shownText)
}

// answerID returns the id of an answer: that of what was shown, if the answer begins with it, else a new one.
func (l *shownAnswer) answerID(answer string) agentsvc.MessageID {
	if l.hasShownPrefix(answer) {
		return l.id
	}
	return agentsvc.MessageID(agentsvc.NewID())
}

// recordArtifact puts an update of an artifact on record, text that follows text together with it: a server may send it word by
// word.
func (v *remoteRun) recordArtifact(up agentsvc.ArtifactUpdate) error {
	if p := v.pendingArtifact; p != nil && up.Append && up.Artifact.ID == p.Artifact.ID && !p.Last {
		p.Artifact.Parts = joinParts(p.Artifact.Parts, up.Artifact.Parts)
		p.Last = up.Last
	} else {
		if err := v.flushArtifact(); err != nil {
			return err
		}
		v.pendingArtifact = &up
	}
	size := 0
	for _, p := range v.pendingArtifact.Artifact.Parts {
		if !isPlainText(p) {
			return v.flushArtifact()
		}
		size += len(p.Text)
	}
	if v.pendingArtifact.Last || size >= maxPendingBytes {
		return v.flushArtifact()
	}
	return nil
}

// flushArtifact puts on record what is pending.
func (v *remoteRun) flushArtifact() error {
	p := v.pendingArtifact
	if v.pendingArtifact = nil; p != nil && !v.yield(agentsvc.Event{Artifact: p}, nil) {
		return errStopped
	}
	return nil
}

// joinParts appends more to parts, text to text.
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

// diffParts returns what whole, an artifact that grows, has beyond the parts that are known of it.
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
