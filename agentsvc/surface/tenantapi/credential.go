package tenantapi

import (
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/decode"
	"stoa/agentsvc/surface/encode"
	"stoa/agentsvc/surface/response"
	"stoa/authz"
)

// handleListCredentials answers with the credentials that the caller has given to tools: for which tool and server,
// never the value. Other users' credentials are not listed, whatever the caller may read.
func handleListCredentials(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	// The visibility itself is not used: this only checks that the caller may use the app at all.
	if _, err := v.ResolveVisibility(r.Context(), authz.TasksRead, ""); err != nil {
		return err
	}
	out := credentialList{Credentials: []credentialBody{}}
	if vault := v.Runtime.Vault(); vault != nil {
		stored, err := vault.ListCredentials(r.Context(), v.Principal.Owner())
		if err != nil {
			return err
		}
		for _, c := range stored {
			out.Credentials = append(out.Credentials, credentialBody{c.Tool, c.Header, c.Server, encode.FormatOptionalTime(c.Created)})
		}
	}
	return response.WriteJSON(w, http.StatusOK, out)
}

// handleDeleteCredential deletes the caller's credential for a tool.
func handleDeleteCredential(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	if _, err := v.ResolveVisibility(r.Context(), authz.TasksCancel, ""); err != nil {
		return err
	}
	tool := surface.PathParam(r, "tool")
	if err := decode.CheckID("tool", tool); err != nil {
		return err
	}
	// Without a vault the app has no credentials.
	if v.Runtime.Vault() == nil {
		return agentsvc.ErrNotFound
	}
	if err := v.Runtime.Vault().ForgetCredential(r.Context(), v.Principal.Owner(), v.Origin(), tool); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
