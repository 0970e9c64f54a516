package app

import (
	"net/url"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// newCredential is what a tool sends of its caller's own to the server at address, nil if nothing.
func (b *builder) newCredential(name string, t *config.Tool, address string) (*tool.CredentialProvider, error) {
	if t.Credential == nil {
		return nil, nil
	}
	if b.vault == nil {
		return nil, agentsvc.NewInvalidError("credential", "there are no keys here to seal what callers supply")
	}
	u, err := url.Parse(address)
	if err != nil || tool.URLOrigin(u) == "" {
		return nil, agentsvc.NewInvalidError("credential", "the server's address must be an http or https one")
	}
	return &tool.CredentialProvider{
		Credential: agentsvc.Credential{Tool: name, Header: t.Credential.Header, Server: tool.URLOrigin(u)},
		Prompt:     t.Credential.Prompt, Timeout: t.ApprovalTimeout, Vault: b.vault, AllowAnonymous: !b.cfg.Server.Auth.Enabled, Logger: b.log,
	}, nil
}
