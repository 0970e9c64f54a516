package surface

import (
	"cmp"
	"mime"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/task"
)

// checkInputModes returns an [apierror.CodeContentType] for a message with a part whose media type is not among the
// input modes of the agent's card. A data part of a message that continues a task is accepted: it may be the answer
// that the task waits for, which the task service reads, not the agent.
func (req *Request) checkInputModes(sub task.Submission) error {
	card, ok := req.Runtime.Card(sub.Agent)
	if !ok {
		return nil // the task service answers that the agent does not exist
	}
	for i, p := range sub.Message.Parts {
		if p.Data != nil && sub.Message.Task != "" {
			continue
		}
		if kind, ok := matchInputMode(card.InputModes, p); !ok {
			return agentsvc.NewError(apierror.CodeContentType, "the agent does not read this type of content: message.parts[%d] is %.80q, and %s reads %s", i, kind, card.Agent, strings.Join(card.InputModes, ", "))
		}
	}
	for _, m := range sub.Message.PriorMessages {
		for _, p := range m.Parts {
			if kind, ok := matchInputMode(card.InputModes, p); m.Role == agentsvc.RoleUser && !ok {
				return agentsvc.NewError(apierror.CodeContentType, "the agent does not read this type of content: an earlier message holds %.80q, and %s reads %s", kind, card.Agent, strings.Join(card.InputModes, ", "))
			}
		}
	}
	return nil
}

const plainText = "text/plain"

// matchInputMode returns the media type of a part, in lower case and without parameters, and whether it is among modes.
// A text is accepted by an agent that reads plain text, whatever type the sender gave it.
func matchInputMode(modes []string, p agentsvc.Part) (kind string, ok bool) {
	switch {
	case p.File != nil:
		kind = cmp.Or(p.File.MediaType, "application/octet-stream")
	case p.Data != nil:
		kind = cmp.Or(p.Data.MediaType, "application/json")
	default:
		kind, ok = cmp.Or(p.TextType, plainText), acceptsMediaType(modes, plainText)
	}
	if plain, _, err := mime.ParseMediaType(kind); err == nil {
		kind = plain
	}
	kind = strings.ToLower(kind)
	return kind, ok || acceptsMediaType(modes, kind)
}

// acceptsMediaType reports whether one of modes, such as image/png, image/* or */*, includes kind, which is in lower
// case.
func acceptsMediaType(modes []string, kind string) bool {
	for _, mode := range modes {
		mode = strings.ToLower(mode)
		family, all := strings.CutSuffix(mode, "*")
		if mode == kind || mode == "*/*" || all && family != "" && strings.HasPrefix(kind, family) {
			return true
		}
	}
	return false
}
