package guardrail

import (
	"slices"

	"stoa/agentsvc"
)

// artifactCheck checks one artifact of an answer. Consecutive text parts are one text, also across updates, because a
// match may be split between them. It is used by its AnswerCheck only.
type artifactCheck struct {
	answer *AnswerCheck
	// head is the artifact of the last update, checked and without parts.
	head agentsvc.Artifact
	// text is the check of the current run of text parts.
	text *textCheck
	// updateSent reports that an update was allowed: further ones must append.
	updateSent bool
	// blocked reports that a check blocked; the whole answer is blocked then.
	blocked bool
}

// ensureArtifactCheck returns the check of the artifact that u updates: the existing one if u appends, else a new one.
func (a *AnswerCheck) ensureArtifactCheck(u agentsvc.ArtifactUpdate) *artifactCheck {
	i := slices.IndexFunc(a.artifacts, func(x *artifactCheck) bool { return x.head.ID == u.Artifact.ID })
	if i >= 0 && u.Append {
		return a.artifacts[i]
	}
	x := &artifactCheck{answer: a, text: a.newTextCheck(), updateSent: u.Append}
	if i >= 0 {
		a.artifacts[i] = x
	} else {
		a.artifacts = append(a.artifacts, x)
	}
	return x
}

// checkUpdate returns the part of an update that is allowed by now: at most one update, none if all its text is kept
// back.
func (x *artifactCheck) checkUpdate(u agentsvc.ArtifactUpdate) []agentsvc.ArtifactUpdate {
	x.head = u.Artifact
	x.head.Parts = nil
	x.head.Name, x.head.Description = x.checkText(u.Artifact.Name), x.checkText(u.Artifact.Description)
	if v, changed := rewriteValue(u.Artifact.Metadata, x.checkText); changed {
		x.head.Metadata, _ = v.(map[string]any)
	}
	var parts []agentsvc.Part
	for _, p := range u.Artifact.Parts {
		if p.Data == nil && p.File == nil {
			parts = appendText(parts, x.text.writeText(p.Text), false)
			continue
		}
		parts = appendText(parts, x.endText(), true)
		x.text = x.answer.newTextCheck()
		parts = append(parts, rewriteTexts([]agentsvc.Part{p}, x.checkText)...)
	}
	if u.Last {
		parts = appendText(parts, x.endText(), true)
	}
	x.blocked = x.blocked || x.text.blocked
	if len(parts) == 0 && len(u.Artifact.Parts) > 0 && !u.Last {
		return nil // all text of the update is kept back
	}
	return x.newUpdate(parts, u.Last)
}

// endArtifact returns the kept back rest of the artifact's text, if it is allowed.
func (x *artifactCheck) endArtifact() []agentsvc.ArtifactUpdate {
	rest := x.endText()
	if rest == "" || x.blocked {
		return nil
	}
	return x.newUpdate([]agentsvc.Part{agentsvc.TextPart(rest)}, false)
}

// newUpdate returns an update with the given parts.
func (x *artifactCheck) newUpdate(parts []agentsvc.Part, last bool) []agentsvc.ArtifactUpdate {
	u := agentsvc.ArtifactUpdate{Artifact: x.head, Append: x.updateSent, Last: last}
	u.Artifact.Parts = parts
	x.updateSent = true
	return []agentsvc.ArtifactUpdate{u}
}

// endText ends the current text and returns its rest.
func (x *artifactCheck) endText() string {
	rest := x.text.endText()
	x.blocked = x.blocked || x.text.blocked
	return rest
}

// checkText checks a complete text, e.g. the artifact's name, and returns what is allowed of it.
func (x *artifactCheck) checkText(s string) string {
	t := x.answer.newTextCheck()
	out := t.writeText(s) + t.endText()
	x.blocked = x.blocked || t.blocked
	return out
}

// appendText appends text to parts: as a part of its own, or, with rest set, to the text part at the end, if there is
// one.
func appendText(parts []agentsvc.Part, text string, rest bool) []agentsvc.Part {
	n := len(parts)
	switch {
	case text == "":
		return parts
	case rest && n > 0 && parts[n-1].Data == nil && parts[n-1].File == nil:
		parts[n-1].Text += text
		return parts
	}
	return append(parts, agentsvc.TextPart(text))
}
