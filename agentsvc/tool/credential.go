package tool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/store/vault"
)

// CredentialProvider describes the credential of its caller that a tool sends: the value of a header in requests to one
// server, and to no other. A nil provider means that the tool sends none.
type CredentialProvider struct {
	agentsvc.Credential
	// Prompt is the request to the caller, "" = a default.
	Prompt string
	// Timeout is how long the credential is waited for, 0 = without limit.
	Timeout time.Duration
	// Vault stores the values, encrypted, by caller.
	Vault *vault.Vault
	// AllowAnonymous lets callers without an identity share one credential. Otherwise they cannot use the tool.
	AllowAnonymous bool
	Logger         *slog.Logger
}

// CredentialError reports that a call needs its caller's credential: there was none, and the call had no effect, or its
// server refused it (Refused). The agent asks the caller for it and ends the turn until it is supplied.
type CredentialError struct {
	*CredentialProvider
	Refused bool
}

// Error returns one line for callers and models.
func (e *CredentialError) Error() string {
	return fmt.Sprintf("%s needs a credential of its caller that %s accepts", e.Tool, e.Server)
}

// NewApproval returns the request for the credential that call lacks.
func (e *CredentialError) NewApproval(call agentsvc.ToolCall) agentsvc.Approval {
	prompt := e.Prompt
	if prompt == "" {
		prompt = fmt.Sprintf("%s needs a credential of yours: the value of the header %s for %s.", e.Tool, e.Header, e.Server)
	}
	if e.Refused {
		prompt = "The last one was not accepted. " + prompt
	}
	return agentsvc.Approval{Call: call, Kind: agentsvc.SupplyCredential, Prompt: prompt, Timeout: e.Timeout, Credential: e.CredentialProvider.Credential}
}

// errAnonymousCaller is the error of a caller without an identity: credentials are stored by caller.
var errAnonymousCaller = errors.New("the tool needs a credential of its caller, and callers without a name have none")

// CallerCredential is the decrypted credential of one caller. Nil means no credential.
type CallerCredential struct {
	Owner agentsvc.Owner
	Value string

	provider *CredentialProvider
	// sealed identifies the stored value, so that DropRefused does not delete one that was supplied since.
	sealed vault.SealedCredential
}

// LoadCredential returns the credential of the caller whose session it is. It returns a [*CredentialError] if that
// caller has supplied none, and nil for a nil provider.
func (c *CredentialProvider) LoadCredential(ctx context.Context, session agentsvc.SessionKey) (*CallerCredential, error) {
	if c == nil {
		return nil, nil
	}
	if session.IsZero() || session.Owner.Issuer == "" && !c.AllowAnonymous {
		return nil, errAnonymousCaller
	}
	value, sealed, err := c.Vault.OpenCredential(ctx, session.Owner, c.Credential)
	switch {
	case errors.Is(err, agentsvc.ErrNotFound):
		return nil, &CredentialError{CredentialProvider: c}
	case err != nil:
		c.Logger.ErrorContext(ctx, "a credential cannot be read", "tool", c.Tool, "error", err)
		return nil, errors.New("the caller's credential cannot be read at the moment")
	}
	return &CallerCredential{Owner: session.Owner, Value: value, provider: c, sealed: sealed}, nil
}

// DropRefused deletes a credential that its server refused, and returns the [*CredentialError] that asks for another
// one.
func (c *CallerCredential) DropRefused(ctx context.Context) error {
	if err := c.provider.Vault.DropCredential(ctx, c.sealed); err != nil {
		c.provider.Logger.ErrorContext(ctx, "a credential that its server refused could not be deleted", "tool", c.provider.Tool, "error", err)
	}
	return &CredentialError{CredentialProvider: c.provider, Refused: true}
}

// minRedactedLength is the least number of bytes of a text that RedactText replaces: shorter ones would occur by
// chance.
const minRedactedLength = 6

// RedactText returns text with the credential replaced, in case its server repeated it: the whole value, or the part
// after its scheme ("Bearer ..."). Without it, a server could put the caller's credential into the conversation.
func (c *CallerCredential) RedactText(text string) string {
	if c == nil {
		return text
	}
	pieces := []string{c.Value}
	if _, bare, ok := strings.Cut(c.Value, " "); ok {
		pieces = append(pieces, strings.TrimSpace(bare))
	}
	for _, piece := range pieces {
		if len(piece) >= minRedactedLength {
			text = strings.ReplaceAll(text, piece, "[credential]")
		}
	}
	return text
}

// URLOrigin returns scheme, host and port of an http or https address in lower case, without the default port, and ""
// for any other address.
func URLOrigin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	port, known := map[string]string{"http": ":80", "https": ":443"}[scheme]
	if !known || host == "" {
		return ""
	}
	return scheme + "://" + strings.TrimSuffix(host, port)
}
