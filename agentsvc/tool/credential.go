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
	"stoa/agentsvc/store"
)

// CredentialProvider is what a tool sends of its caller's own: a header of the requests to its server, and to no other. A nil one
// is none.
type CredentialProvider struct {
	agentsvc.Credential
	Prompt         string        // what its caller is asked for
	Timeout        time.Duration // after which it is too late, 0 = never
	Vault          *store.Vault  // that keeps the values
	AllowAnonymous bool          // callers whom nobody can tell apart share one
	Logger         *slog.Logger
}

// CredentialError says that a tool needs its caller's credential first: it did nothing without, or its server refused the
// one it had.
type CredentialError struct {
	*CredentialProvider
	Refused bool
}

// Error returns one line that a caller and a model may read.
func (e *CredentialError) Error() string {
	return fmt.Sprintf("%s needs a credential of its caller that %s accepts", e.Tool, e.Server)
}

// NewApproval is what the caller of a tool is asked for.
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

var errAnonymousCaller = errors.New("the tool needs a credential of its caller, and callers without a name have none")

// CallerCredential is the credential of one caller at hand.
type CallerCredential struct {
	Owner agentsvc.Owner
	Value string

	provider *CredentialProvider
	sealed   store.SealedCredential
}

// LoadCredential returns the credential of the caller whose turn ctx belongs to. It returns a [*CredentialError] if that caller has
// supplied none, and nil if none is needed.
func (c *CredentialProvider) LoadCredential(ctx context.Context) (*CallerCredential, error) {
	if c == nil {
		return nil, nil
	}
	key, ok := agentsvc.SessionFromContext(ctx)
	if !ok || key.Owner.Issuer == "" && !c.AllowAnonymous {
		return nil, errAnonymousCaller
	}
	value, sealed, err := c.Vault.OpenCredential(ctx, key.Owner, c.Credential)
	switch {
	case errors.Is(err, agentsvc.ErrNotFound):
		return nil, &CredentialError{CredentialProvider: c}
	case err != nil:
		c.Logger.ErrorContext(ctx, "a credential cannot be read", "tool", c.Tool, "error", err)
		return nil, errors.New("whether its caller has supplied a credential cannot be known at the moment")
	}
	return &CallerCredential{Owner: key.Owner, Value: value, provider: c, sealed: sealed}, nil
}

// DropRefused forgets a credential that its server did not accept. It returns a [*CredentialError].
func (g *CallerCredential) DropRefused(ctx context.Context) error {
	if err := g.provider.Vault.DropCredential(ctx, g.sealed); err != nil {
		g.provider.Logger.ErrorContext(ctx, "a credential that its server refused is still there", "tool", g.provider.Tool, "error", err)
	}
	return &CredentialError{CredentialProvider: g.provider, Refused: true}
}

// minRedactedLength is how long a piece of a credential is that is looked for in what a server says.
const minRedactedLength = 6

// RedactText returns text without the credential, should its server have repeated it: as a whole, or what follows its scheme.
func (g *CallerCredential) RedactText(text string) string {
	if g == nil {
		return text
	}
	pieces := []string{g.Value}
	if _, bare, ok := strings.Cut(g.Value, " "); ok {
		pieces = append(pieces, strings.TrimSpace(bare))
	}
	for _, piece := range pieces {
		if len(piece) >= minRedactedLength {
			text = strings.ReplaceAll(text, piece, "[credential]")
		}
	}
	return text
}

// URLOrigin returns the scheme, host and port of an http or https address, "" for any other.
func URLOrigin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	port, known := map[string]string{"http": ":80", "https": ":443"}[scheme]
	if !known || host == "" {
		return ""
	}
	return scheme + "://" + strings.TrimSuffix(host, port)
}
