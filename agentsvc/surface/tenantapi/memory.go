package tenantapi

import (
	"net/http"

	"github.com/google/uuid"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/agentsvc/task"
	"stoa/authz"
)

// handleListMemories answers with a page of the memories about one user: the caller, or the user of the query if
// the caller may read every user's tasks. A user out of reach gets the answer of a user without memories.
func handleListMemories(w http.ResponseWriter, r *http.Request) error {
	filter, allowed, err := parseMemoryFilter(r, authz.TasksRead)
	if err != nil {
		return err
	}
	size, err := decode.ParsePageSize(r, task.DefaultPageSize, task.MaxPageSize)
	if err != nil {
		return err
	}
	token := r.URL.Query().Get("page_token")
	// IDs of memories are UUIDs, and the token is the ID of the last one of the previous page.
	if token != "" && uuid.Validate(token) != nil {
		return agentsvc.NewInvalidError("page_token", "is not a token of this list")
	}
	out := memoryList{Memories: []memoryBody{}}
	if !allowed {
		return response.WriteJSON(w, http.StatusOK, out)
	}
	found, more, err := surface.RequestOf(r).Runtime.Memories().ListMemories(r.Context(), filter, size, token)
	if err != nil {
		return err
	}
	for _, m := range found {
		out.Memories = append(out.Memories, memoryBody{
			m.ID, m.Owner.Subject, m.Owner.Issuer, m.Agent, string(m.Context), string(m.Task), string(m.Role), m.Text, encode.FormatOptionalTime(m.At),
		})
	}
	if more {
		out.NextPageToken = found[len(found)-1].ID
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleEraseMemories deletes the memories about one user and the credentials of that user: the caller, or the user
// of the query if the caller may cancel every user's tasks. A token that is restricted to some agents deletes their
// memories only, and no credentials, because credentials belong to no agent.
func handleEraseMemories(w http.ResponseWriter, r *http.Request) error {
	filter, allowed, err := parseMemoryFilter(r, authz.TasksCancel)
	if err != nil {
		return err
	}
	var n int64
	if allowed {
		if n, err = surface.RequestOf(r).Runtime.Memories().ForgetMemories(r.Context(), filter); err != nil {
			return err
		}
		if vault := surface.RequestOf(r).Runtime.Vault(); vault != nil && filter.Agents == nil {
			if err := vault.ForgetUserCredentials(r.Context(), surface.RequestOf(r).Actor(), filter.Subject, filter.Issuer); err != nil {
				return err
			}
		}
	}
	return response.WriteJSON(w, http.StatusOK, map[string]int64{"erased": n})
}

// parseMemoryFilter returns the memories that the query means and whether they are within the caller's visibility,
// which the scope wide extends to all users. With allowed false the caller must be answered as if there were none.
func parseMemoryFilter(r *http.Request, wide authz.Scope) (filter memory.Filter, allowed bool, err error) {
	v, q := surface.RequestOf(r), r.URL.Query()
	visibility, err := v.ResolveVisibility(r.Context(), wide, "")
	if err != nil {
		return filter, false, err
	}
	for _, field := range []string{"user", "issuer"} {
		if err := decode.CheckID(field, q.Get(field)); err != nil {
			return filter, false, err
		}
	}
	if q.Has("user") && q.Get("user") == "" {
		return filter, false, agentsvc.NewInvalidError("user", "is empty; without it, the caller is meant")
	}
	// Without a user the query means the caller, of the caller's issuer.
	own := v.Principal.Owner()
	filter = memory.Filter{Subject: q.Get("user"), Agents: visibility.Agents}
	if q.Has("issuer") {
		issuer := q.Get("issuer")
		filter.Issuer = &issuer
	}
	if filter.Subject == "" {
		filter.Subject, filter.Issuer = own.Subject, &own.Issuer
	}
	// No owner in the visibility means all users of the app.
	if visibility.Owner == nil {
		return filter, true, nil
	}
	allowed = filter.Subject == own.Subject && (filter.Issuer == nil || *filter.Issuer == own.Issuer)
	// Two issuers may use the same subject for different users: a caller without the wide scope reaches only that
	// of its own issuer.
	filter.Issuer = &own.Issuer
	return filter, allowed, nil
}
