package ops

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/authz"
)

// handleListCredentials answers with what the caller has entrusted to tools: for which, never what.
func handleListCredentials(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if _, err := v.ResolveVisibility(r.Context(), authz.TasksRead, ""); err != nil {
		return err
	}
	out := credentialList{Credentials: []credentialBody{}}
	if vault := v.Vault(); vault != nil {
		stored, err := vault.ListCredentials(r.Context(), v.Principal.Owner())
		if err != nil {
			return err
		}
		for _, c := range stored {
			out.Credentials = append(out.Credentials, credentialBody{c.Tool, c.Header, c.Server, formatTime(c.Created)})
		}
	}
	return surface.WriteJSON(w, http.StatusOK, out)
}

// handleDeleteCredential erases what the caller has entrusted to a tool.
func handleDeleteCredential(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if _, err := v.ResolveVisibility(r.Context(), authz.TasksCancel, ""); err != nil {
		return err
	}
	tool := surface.PathParam(r, "tool")
	if err := surface.CheckID("tool", tool); err != nil {
		return err
	}
	if v.Vault() == nil {
		return agentsvc.ErrNotFound
	}
	if err := v.Vault().ForgetCredential(r.Context(), v.Principal.Owner(), tool); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
