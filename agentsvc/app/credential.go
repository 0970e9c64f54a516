package app

import (
	"net/url"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// credential is what a tool sends of its caller's own to the server at address, nil if nothing.
func (b *builder) credential(name string, t *config.Tool, address string) (*tool.Credential, error) {
	if t.Credential == nil {
		return nil, nil
	}
	if b.vault == nil {
		return nil, agentsvc.Invalid("credential", "there are no keys here to seal what callers supply")
	}
	u, err := url.Parse(address)
	if err != nil || tool.Origin(u) == "" {
		return nil, agentsvc.Invalid("credential", "the server's address must be an http or https one")
	}
	return &tool.Credential{
		Credential: agentsvc.Credential{Tool: name, Header: t.Credential.Header, Server: tool.Origin(u)},
		Prompt:     t.Credential.Prompt, Timeout: t.ApprovalTimeout, Vault: b.vault, Strangers: !b.cfg.Server.Auth.Enabled, Log: b.log,
	}, nil
}
