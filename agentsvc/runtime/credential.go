package runtime

import (
	"net/url"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// newCredential returns the provider of the credential that a tool requests from its caller and sends to the server at
// address; nil if the tool requests none. The credential is bound to the origin of that server: another address never
// receives it.
func (b *toolBuilder) newCredential(name string, t *config.Tool, address string) (*tool.CredentialProvider, error) {
	if t.Credential == nil {
		return nil, nil
	}
	if b.vault == nil {
		return nil, agentsvc.NewInvalidError("credential", "this process has no keys to encrypt the credentials of callers")
	}
	u, err := url.Parse(address)
	if err != nil || tool.URLOrigin(u) == "" {
		return nil, agentsvc.NewInvalidError("credential", "the server's address must be an http or https one")
	}
	// Without authentication all callers are one owner. With AllowAnonymous they share one credential.
	return &tool.CredentialProvider{
		Credential: agentsvc.Credential{Tool: name, Header: t.Credential.Header, Server: tool.URLOrigin(u)},
		Prompt:     t.Credential.Prompt, Timeout: t.ApprovalTimeout, Vault: b.vault, AllowAnonymous: !b.cfg.Server.Auth.Enabled, Logger: b.log,
	}, nil
}
