package function

import (
	"fmt"
	"net/http"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool"
)

// credentialClient is the way out of a function, with its caller's credential for the one server that it is meant for.
type credentialClient struct {
	httpClient *http.Client
	provider   *tool.CredentialProvider
}

// sendRequest sends req. It returns the credential that went with it, nil if none did, and where one is needed and missing, or
// was refused, a [*tool.CredentialError].
func (w credentialClient) sendRequest(req *http.Request) (*http.Response, *tool.CallerCredential, error) {
	var credential *tool.CallerCredential
	if w.provider != nil && tool.URLOrigin(req.URL) == w.provider.Server {
		var err error
		if credential, err = w.provider.LoadCredential(req.Context()); err != nil {
			return nil, nil, err
		}
		req.Header.Set(w.provider.Header, credential.Value)
	}
	resp, err := w.httpClient.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %s", req.URL.Host, egress.PublicMessage(err))
	}
	if credential != nil && resp.StatusCode == http.StatusUnauthorized && resp.Request.Header.Get(w.provider.Header) == credential.Value {
		_ = resp.Body.Close()
		return nil, nil, credential.DropRefused(req.Context())
	}
	return resp, credential, nil
}
