package runtime

import (
	"context"
	"net/url"

	"stoa/agentsvc"
	"stoa/agentsvc/config"
	"stoa/agentsvc/tool"
)

// approvalOptions returns whether calls of a tool wait for an approval, and with which prompt and timeout.
func approvalOptions(t *config.Tool) tool.ApprovalOptions {
	return tool.ApprovalOptions{Required: t.NeedsApproval(), Prompt: t.ApprovalPrompt, Timeout: t.ApprovalTimeout}
}

// newArgumentCheck returns a function that validates a call whose arguments an approver has changed. It uses the first
// set that has the tool: a name means the same tool in every set. If no set has it any more the error is an
// [agentsvc.CodeInvalid].
func newArgumentCheck(sets []*tool.Set) func(ctx context.Context, session agentsvc.SessionKey, call agentsvc.ToolCall) error {
	return func(ctx context.Context, session agentsvc.SessionKey, call agentsvc.ToolCall) error {
		for _, set := range sets {
			live, err := set.LoadLiveSet(ctx, session)
			if err == nil && live.HasTool(call.Name) {
				return live.CheckCall(ctx, call)
			}
		}
		return agentsvc.NewInvalidError("tool", "%s is not available any more, so its arguments cannot be changed", call.Name)
	}
}

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
	if address == "" {
		return nil, errDependencyInvalid // a credential without an address is refused before
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
