package guardrail

import (
	"slices"

	"stoa/agentsvc"
)

// artifactCheck checks one artifact of an answer. Its text parts that follow each other are one text, also across updates.
type artifactCheck struct {
	answer     *AnswerCheck
	head       agentsvc.Artifact // without parts
	text       *textCheck
	updateSent bool // an update has passed
	blocked    bool
}

// ensureArtifactCheck returns the check of the artifact that u is about: a new one unless u goes on with an earlier one.
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

// checkUpdate returns what passes of an update.
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
		return nil // all of it is kept back
	}
	return x.newUpdate(parts, u.Last)
}

// endArtifact returns the rest of the artifact that passes.
func (x *artifactCheck) endArtifact() []agentsvc.ArtifactUpdate {
	rest := x.endText()
	if rest == "" || x.blocked {
		return nil
	}
	return x.newUpdate([]agentsvc.Part{agentsvc.TextPart(rest)}, false)
}

func (x *artifactCheck) newUpdate(parts []agentsvc.Part, last bool) []agentsvc.ArtifactUpdate {
	u := agentsvc.ArtifactUpdate{Artifact: x.head, Append: x.updateSent, Last: last}
	u.Artifact.Parts = parts
	x.updateSent = true
	return []agentsvc.ArtifactUpdate{u}
}

// endText ends the text under way and returns the rest of it.
func (x *artifactCheck) endText() string {
	rest := x.text.endText()
	x.blocked = x.blocked || x.text.blocked
	return rest
}

// checkText checks a text that is there as a whole.
func (x *artifactCheck) checkText(s string) string {
	t := x.answer.newTextCheck()
	out := t.writeText(s) + t.endText()
	x.blocked = x.blocked || t.blocked
	return out
}

// appendText adds text to parts: as a part of its own, or with rest to the text part they end with, if they do.
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
