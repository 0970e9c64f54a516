package ops

import (
	"net/http"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handleListMemories answers with a page of what is remembered of a user: the caller, unless the query names another and the
// caller may read everybody's.
func handleListMemories(w http.ResponseWriter, r *http.Request) error {
	filter, allowed, err := parseMemoryFilter(r, authz.TasksRead)
	if err != nil {
		return err
	}
	size, err := surface.ParsePageSize(r, task.DefaultPageSize, task.MaxPageSize)
	if err != nil {
		return err
	}
	token := r.URL.Query().Get("page_token")
	if token != "" && uuid.Validate(token) != nil {
		return agentsvc.NewInvalidError("page_token", "is not one that this list gave")
	}
	out := memoryList{Memories: []memoryBody{}}
	if !allowed {
		return surface.WriteJSON(w, http.StatusOK, out)
	}
	found, more, err := surface.RequestOf(r).Memories().ListMemories(r.Context(), filter, size, token)
	if err != nil {
		return err
	}
	for _, m := range found {
		out.Memories = append(out.Memories, memoryBody{
			m.ID, m.Owner.Subject, m.Owner.Issuer, m.Agent, string(m.Context), string(m.Task), string(m.Role), m.Text, formatTime(m.At),
		})
	}
	if more {
		out.NextPageToken = found[len(found)-1].ID
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// handleEraseMemories removes what is remembered of a user, and the credentials that user has entrusted to tools: the caller,
// unless the query names another and the caller may cancel everybody's tasks. One whose token is for some agents alone
// erases what these remember, and no credentials: they belong to no agent.
func handleEraseMemories(w http.ResponseWriter, r *http.Request) error {
	filter, allowed, err := parseMemoryFilter(r, authz.TasksCancel)
	if err != nil {
		return err
	}
	var n int64
	if allowed {
		if n, err = surface.RequestOf(r).Memories().ForgetMemories(r.Context(), filter); err != nil {
			return err
		}
		if vault := surface.RequestOf(r).Vault(); vault != nil && filter.Agents == nil {
			if err := vault.ForgetUserCredentials(r.Context(), surface.RequestOf(r).Principal.Owner(), filter.Subject, filter.Issuer); err != nil {
				return err
			}
		}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]int64{"erased": n})
}

// parseMemoryFilter returns which memories the query means, and whether they are within the caller's reach, which wide
// extends to everybody's. What is not is as if it were not there.
func parseMemoryFilter(r *http.Request, wide authz.Scope) (filter memory.Filter, allowed bool, err error) {
	v, q := surface.RequestOf(r), r.URL.Query()
	visibility, err := v.ResolveVisibility(r.Context(), wide, "")
	if err != nil {
		return filter, false, err
	}
	for _, field := range []string{"user", "issuer"} {
		if err := surface.CheckID(field, q.Get(field)); err != nil {
			return filter, false, err
		}
	}
	if q.Has("user") && q.Get("user") == "" {
		return filter, false, agentsvc.NewInvalidError("user", "is empty; without it, the caller is meant")
	}
	own := v.Principal.Owner()
	filter = memory.Filter{Subject: q.Get("user"), Agents: visibility.Agents}
	if q.Has("issuer") {
		issuer := q.Get("issuer")
		filter.Issuer = &issuer
	}
	if filter.Subject == "" {
		filter.Subject, filter.Issuer = own.Subject, &own.Issuer
	}
	if visibility.Owner == nil {
		return filter, true, nil
	}
	allowed = filter.Subject == own.Subject && (filter.Issuer == nil || *filter.Issuer == own.Issuer)
	filter.Issuer = &own.Issuer
	return filter, allowed, nil
}
