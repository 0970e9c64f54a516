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

// listMemories answers with a page of what is remembered of a user: the caller, unless the query names another and the
// caller may read everybody's.
func listMemories(w http.ResponseWriter, r *http.Request) error {
	whose, theirs, err := whoseMemories(r, authz.TasksRead)
	if err != nil {
		return err
	}
	size, err := surface.PageSize(r, task.DefaultPage, task.MaxPage)
	if err != nil {
		return err
	}
	token := r.URL.Query().Get("page_token")
	if token != "" && uuid.Validate(token) != nil {
		return agentsvc.Invalid("page_token", "is not one that this list gave")
	}
	out := memoryList{Memories: []memoryBody{}}
	if !theirs {
		return surface.WriteJSON(w, http.StatusOK, out)
	}
	found, more, err := surface.VisitOf(r).Memories().List(r.Context(), whose, size, token)
	if err != nil {
		return err
	}
	for _, m := range found {
		out.Memories = append(out.Memories, memoryBody{
			m.ID, m.Owner.Subject, m.Owner.Issuer, m.Agent, string(m.Context), string(m.Task), string(m.Role), m.Text, stamp(m.At),
		})
	}
	if more {
		out.NextPageToken = found[len(found)-1].ID
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// eraseMemories removes what is remembered of a user, and the credentials that user has entrusted to tools: the caller,
// unless the query names another and the caller may cancel everybody's tasks. One whose token is for some agents alone
// erases what these remember, and no credentials: they belong to no agent.
func eraseMemories(w http.ResponseWriter, r *http.Request) error {
	whose, theirs, err := whoseMemories(r, authz.TasksCancel)
	if err != nil {
		return err
	}
	var n int64
	if theirs {
		if n, err = surface.VisitOf(r).Memories().Forget(r.Context(), whose); err != nil {
			return err
		}
		if vault := surface.VisitOf(r).Vault(); vault != nil && whose.Agents == nil {
			if err := vault.ForgetUser(r.Context(), surface.VisitOf(r).Principal.Owner(), whose.Subject, whose.Issuer); err != nil {
				return err
			}
		}
	}
	return surface.WriteJSON(w, http.StatusOK, map[string]int64{"erased": n})
}

// whoseMemories returns which memories the query means, and whether they are within the caller's reach, which wide
// extends to everybody's. What is not is as if it were not there.
func whoseMemories(r *http.Request, wide authz.Scope) (whose memory.Whose, within bool, err error) {
	v, q := surface.VisitOf(r), r.URL.Query()
	reach, err := v.Reach(r.Context(), wide, "")
	if err != nil {
		return whose, false, err
	}
	for _, field := range []string{"user", "issuer"} {
		if err := surface.CheckID(field, q.Get(field)); err != nil {
			return whose, false, err
		}
	}
	if q.Has("user") && q.Get("user") == "" {
		return whose, false, agentsvc.Invalid("user", "is empty; without it, the caller is meant")
	}
	own := v.Principal.Owner()
	whose = memory.Whose{Subject: q.Get("user"), Agents: reach.Agents}
	if q.Has("issuer") {
		issuer := q.Get("issuer")
		whose.Issuer = &issuer
	}
	if whose.Subject == "" {
		whose.Subject, whose.Issuer = own.Subject, &own.Issuer
	}
	if reach.Owner == nil {
		return whose, true, nil
	}
	within = whose.Subject == own.Subject && (whose.Issuer == nil || *whose.Issuer == own.Issuer)
	whose.Issuer = &own.Issuer
	return whose, within, nil
}
