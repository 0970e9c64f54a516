package function

import (
	"fmt"
	"net/http"

	"stoa/agentsvc/egress"
	"stoa/agentsvc/tool"
)

// way is the way out of a function, with its caller's credential for the one server that it is meant for.
type way struct {
	http       *http.Client
	credential *tool.Credential
}

// send sends req. It returns the credential that went with it, nil if none did, and where one is needed and missing, or
// was refused, a [*tool.CredentialError].
func (w way) send(req *http.Request) (*http.Response, *tool.Grant, error) {
	var grant *tool.Grant
	if w.credential != nil && tool.Origin(req.URL) == w.credential.Server {
		var err error
		if grant, err = w.credential.Grant(req.Context()); err != nil {
			return nil, nil, err
		}
		req.Header.Set(w.credential.Header, grant.Value)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %s", req.URL.Host, egress.Reason(err))
	}
	if grant != nil && resp.StatusCode == http.StatusUnauthorized && resp.Request.Header.Get(w.credential.Header) == grant.Value {
		_ = resp.Body.Close()
		return nil, nil, grant.Refused(req.Context())
	}
	return resp, grant, nil
}
