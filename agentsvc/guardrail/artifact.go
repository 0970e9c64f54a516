package guardrail

import (
	"slices"

	"stoa/agentsvc"
)

// artifact checks one artifact of an answer. Its text parts that follow each other are one text, also across updates.
type artifact struct {
	a       *Answer
	head    agentsvc.Artifact // without parts
	text    *text
	shown   bool // an update has passed
	blocked bool
}

// artifact returns the check of the artifact that u is about: a new one unless u goes on with an earlier one.
func (a *Answer) artifact(u agentsvc.ArtifactUpdate) *artifact {
	i := slices.IndexFunc(a.artifacts, func(x *artifact) bool { return x.head.ID == u.Artifact.ID })
	if i >= 0 && u.Append {
		return a.artifacts[i]
	}
	x := &artifact{a: a, text: a.newText(), shown: u.Append}
	if i >= 0 {
		a.artifacts[i] = x
	} else {
		a.artifacts = append(a.artifacts, x)
	}
	return x
}

// take returns what passes of an update.
func (x *artifact) take(u agentsvc.ArtifactUpdate) []agentsvc.ArtifactUpdate {
	x.head = u.Artifact
	x.head.Parts = nil
	x.head.Name, x.head.Description = x.all(u.Artifact.Name), x.all(u.Artifact.Description)
	if v, changed := rewriteValue(u.Artifact.Metadata, x.all); changed {
		x.head.Metadata, _ = v.(map[string]any)
	}
	var parts []agentsvc.Part
	for _, p := range u.Artifact.Parts {
		if p.Data == nil && p.File == nil {
			parts = join(parts, x.text.write(p.Text), false)
			continue
		}
		parts = join(parts, x.finish(), true)
		x.text = x.a.newText()
		parts = append(parts, rewrite([]agentsvc.Part{p}, x.all)...)
	}
	if u.Last {
		parts = join(parts, x.finish(), true)
	}
	x.blocked = x.blocked || x.text.blocked
	if len(parts) == 0 && len(u.Artifact.Parts) > 0 && !u.Last {
		return nil // all of it is kept back
	}
	return x.update(parts, u.Last)
}

// end returns the rest of the artifact that passes.
func (x *artifact) end() []agentsvc.ArtifactUpdate {
	rest := x.finish()
	if rest == "" || x.blocked {
		return nil
	}
	return x.update([]agentsvc.Part{agentsvc.TextPart(rest)}, false)
}

func (x *artifact) update(parts []agentsvc.Part, last bool) []agentsvc.ArtifactUpdate {
	u := agentsvc.ArtifactUpdate{Artifact: x.head, Append: x.shown, Last: last}
	u.Artifact.Parts = parts
	x.shown = true
	return []agentsvc.ArtifactUpdate{u}
}

// finish ends the text under way and returns the rest of it.
func (x *artifact) finish() string {
	rest := x.text.end()
	x.blocked = x.blocked || x.text.blocked
	return rest
}

// all checks a text that is there as a whole.
func (x *artifact) all(s string) string {
	t := x.a.newText()
	out := t.write(s) + t.end()
	x.blocked = x.blocked || t.blocked
	return out
}

// join adds text to parts: as a part of its own, or with rest to the text part they end with, if they do.
func join(parts []agentsvc.Part, text string, rest bool) []agentsvc.Part {
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
