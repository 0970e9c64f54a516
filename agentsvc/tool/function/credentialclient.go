package function

import (
	"fmt"
	"net/http"

	"stoa/agentsvc"
	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool"
)

// credentialClient sends requests of a tool, with the caller's credential to the one server it is for. The credential
// is neither in the arguments nor in the result, so the model never reads it.
type credentialClient struct {
	httpClient *http.Client
	provider   *tool.CredentialProvider
}

// sendRequest sends req on behalf of the session's caller. It returns the answer and the credential that was sent, nil
// if none was. It returns a [*tool.CredentialError] if the credential is missing, or was refused with 401; the agent
// then asks the caller for it and repeats the call. Errors of the network contain the host and a fixed text only.
func (c credentialClient) sendRequest(req *http.Request, session agentsvc.SessionKey) (*http.Response, *tool.CallerCredential, error) {
	var credential *tool.CallerCredential
	if c.provider != nil && tool.URLOrigin(req.URL) == c.provider.Server {
		var err error
		if credential, err = c.provider.LoadCredential(req.Context(), session); err != nil {
			return nil, nil, err
		}
		req.Header.Set(c.provider.Header, credential.Value)
	}
	resp, err := c.httpClient.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %s", req.URL.Host, egress.PublicMessage(err))
	}
	// After a redirect the last request may have gone elsewhere, without the credential: its 401 says nothing about it.
	if credential != nil && resp.StatusCode == http.StatusUnauthorized && resp.Request.Header.Get(c.provider.Header) == credential.Value {
		_ = resp.Body.Close()
		return nil, nil, credential.DropRefused(req.Context())
	}
	return resp, credential, nil
}
