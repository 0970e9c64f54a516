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
func (c *artifactCheck) checkUpdate(u agentsvc.ArtifactUpdate) []agentsvc.ArtifactUpdate {
	c.head = u.Artifact
	c.head.Parts = nil
	c.head.Name, c.head.Description = c.checkText(u.Artifact.Name), c.checkText(u.Artifact.Description)
	if v, changed := rewriteValue(u.Artifact.Metadata, c.checkText); changed {
		c.head.Metadata, _ = v.(map[string]any)
	}
	var parts []agentsvc.Part
	for _, p := range u.Artifact.Parts {
		if p.Data == nil && p.File == nil {
			parts = appendText(parts, c.text.writeText(p.Text), false)
			continue
		}
		parts = appendText(parts, c.endText(), true)
		c.text = c.answer.newTextCheck()
		parts = append(parts, rewriteTexts([]agentsvc.Part{p}, c.checkText)...)
	}
	if u.Last {
		parts = appendText(parts, c.endText(), true)
	}
	c.blocked = c.blocked || c.text.blocked
	if len(parts) == 0 && len(u.Artifact.Parts) > 0 && !u.Last {
		return nil // all text of the update is kept back
	}
	return c.newUpdate(parts, u.Last)
}

// endArtifact returns the kept back rest of the artifact's text, if it is allowed.
func (c *artifactCheck) endArtifact() []agentsvc.ArtifactUpdate {
	rest := c.endText()
	if rest == "" || c.blocked {
		return nil
	}
	return c.newUpdate([]agentsvc.Part{agentsvc.TextPart(rest)}, false)
}

// newUpdate returns an update with the given parts.
func (c *artifactCheck) newUpdate(parts []agentsvc.Part, last bool) []agentsvc.ArtifactUpdate {
	u := agentsvc.ArtifactUpdate{Artifact: c.head, Append: c.updateSent, Last: last}
	u.Artifact.Parts = parts
	c.updateSent = true
	return []agentsvc.ArtifactUpdate{u}
}

// endText ends the current text and returns its rest.
func (c *artifactCheck) endText() string {
	rest := c.text.endText()
	c.blocked = c.blocked || c.text.blocked
	return rest
}

// checkText checks a complete text, e.g. the artifact's name, and returns what is allowed of it.
func (c *artifactCheck) checkText(s string) string {
	t := c.answer.newTextCheck()
	out := t.writeText(s) + t.endText()
	c.blocked = c.blocked || t.blocked
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
