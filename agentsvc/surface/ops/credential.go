package ops

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// listCredentials answers with what the caller has entrusted to tools: for which, never what.
func listCredentials(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	if _, err := v.Reach(r.Context(), authz.TasksRead, ""); err != nil {
		return err
	}
	out := credentialList{Credentials: []credentialBody{}}
	if vault := v.Vault(); vault != nil {
		kept, err := vault.List(r.Context(), v.Principal.Owner())
		if err != nil {
			return err
		}
		for _, c := range kept {
			out.Credentials = append(out.Credentials, credentialBody{c.Tool, c.Header, c.Server, stamp(c.Created)})
		}
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// forgetCredential erases what the caller has entrusted to a tool.
func forgetCredential(w http.ResponseWriter, r *http.Request) error {
	v := surface.VisitOf(r)
	if _, err := v.Reach(r.Context(), authz.TasksCancel, ""); err != nil {
		return err
	}
	tool := surface.Param(r, "tool")
	if err := surface.CheckID("tool", tool); err != nil {
		return err
	}
	if v.Vault() == nil {
		return agentsvc.ErrNotFound
	}
	if err := v.Vault().Forget(r.Context(), v.Principal.Owner(), tool); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
