package tenantapi

import (
	"net/http"

	"stoa/agentsvc/surface"
	"stoa/agentsvc/surface/response"
)

// handleGetCaller answers with who calls and what the credential allows, for programs that show only what their user may do.
// It says nothing that the caller could not find out by trying.
func handleGetCaller(w http.ResponseWriter, r *http.Request) error {
	v := surface.RequestOf(r)
	scopes, err := v.ListScopes()
	if err != nil {
		return err
	}
	return response.WriteJSON(w, http.StatusOK, callerBody{v.App.Name, v.Principal.Subject, v.Principal.Issuer, v.Principal.Anonymous, scopes})
}
