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

// Credential is what a tool sends of its caller's own: a header of the requests to its server, and to no other. A nil one
// is none.
type Credential struct {
	agentsvc.Credential
	Prompt    string        // what its caller is asked for
	Timeout   time.Duration // after which it is too late, 0 = never
	Vault     *store.Vault  // that keeps the values
	Strangers bool          // callers whom nobody can tell apart share one
	Log       *slog.Logger
}

// CredentialError says that a tool needs its caller's credential first: it did nothing without, or its server refused the
// one it had.
type CredentialError struct {
	*Credential
	Refused bool
}

// Error returns one line that a caller and a model may read.
func (e *CredentialError) Error() string {
	return fmt.Sprintf("%s needs a credential of its caller that %s accepts", e.Tool, e.Server)
}

// Approval is what the caller of a tool is asked for.
func (e *CredentialError) Approval(call agentsvc.ToolCall) agentsvc.Approval {
	prompt := e.Prompt
	if prompt == "" {
		prompt = fmt.Sprintf("%s needs a credential of yours: the value of the header %s for %s.", e.Tool, e.Header, e.Server)
	}
	if e.Refused {
		prompt = "The last one was not accepted. " + prompt
	}
	return agentsvc.Approval{Call: call, Kind: agentsvc.SupplyCredential, Prompt: prompt, Timeout: e.Timeout, Credential: e.Credential.Credential}
}

var errStranger = errors.New("the tool needs a credential of its caller, and callers without a name have none")

// Grant is the credential of one caller at hand.
type Grant struct {
	Owner agentsvc.Owner
	Value string

	of   *Credential
	kept store.Sealed
}

// Grant returns the credential of the caller whose turn ctx belongs to. It returns a [*CredentialError] if that caller has
// supplied none, and nil if none is needed.
func (c *Credential) Grant(ctx context.Context) (*Grant, error) {
	if c == nil {
		return nil, nil
	}
	key, ok := agentsvc.SessionOf(ctx)
	if !ok || key.Owner.Issuer == "" && !c.Strangers {
		return nil, errStranger
	}
	value, kept, err := c.Vault.Open(ctx, key.Owner, c.Credential)
	switch {
	case errors.Is(err, agentsvc.ErrNotFound):
		return nil, &CredentialError{Credential: c}
	case err != nil:
		c.Log.ErrorContext(ctx, "a credential cannot be read", "tool", c.Tool, "error", err)
		return nil, errors.New("whether its caller has supplied a credential cannot be known at the moment")
	}
	return &Grant{Owner: key.Owner, Value: value, of: c, kept: kept}, nil
}

// Refused forgets a credential that its server did not accept. It returns a [*CredentialError].
func (g *Grant) Refused(ctx context.Context) error {
	if err := g.of.Vault.Drop(ctx, g.kept); err != nil {
		g.of.Log.ErrorContext(ctx, "a credential that its server refused is still there", "tool", g.of.Tool, "error", err)
	}
	return &CredentialError{Credential: g.of, Refused: true}
}

// shortest is how long a piece of a credential is that is looked for in what a server says.
const shortest = 6

// Hide returns text without the credential, should its server have repeated it: as a whole, or what follows its scheme.
func (g *Grant) Hide(text string) string {
	if g == nil {
		return text
	}
	pieces := []string{g.Value}
	if _, bare, ok := strings.Cut(g.Value, " "); ok {
		pieces = append(pieces, strings.TrimSpace(bare))
	}
	for _, piece := range pieces {
		if len(piece) >= shortest {
			text = strings.ReplaceAll(text, piece, "[credential]")
		}
	}
	return text
}

// Origin returns the scheme, host and port of an http or https address, "" for any other.
func Origin(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	port, known := map[string]string{"http": ":80", "https": ":443"}[scheme]
	if !known || host == "" {
		return ""
	}
	return scheme + "://" + strings.TrimSuffix(host, port)
}
