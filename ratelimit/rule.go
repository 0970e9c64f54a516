package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
)

// Scope says which calls of an app are counted together.
type Scope string

// The scopes. A session belongs to its owner. All callers without a credential are one user. PerKey counts only callers
// with an API key. PerAgent counts the agent that is called, not agents that it calls in turn.
const (
	PerSession Scope = "session"
	PerUser    Scope = "user"
	PerKey     Scope = "key"
	PerAgent   Scope = "agent"
	PerApp     Scope = "app"
)

// Unit is what a rule counts.
type Unit string

// The units: calls, and the input and output tokens of models.
const (
	Calls  Unit = "count"
	Tokens Unit = "token"
)

// Rule is one limit.
type Rule struct {
	Scope Scope
	// Agent restricts a rule with the scope PerAgent to one agent; "" limits each agent separately.
	Agent  string
	Unit   Unit
	Window Window
	// Limit is the largest count in a window.
	Limit int64
}

// Name identifies the rule within its app. It does not contain the limit, so that a changed limit applies to the
// existing count.
func (r Rule) Name() string {
	name := string(r.Scope)
	if r.Agent != "" {
		name += "-" + r.Agent
	}
	return name + "-" + string(r.Unit) + "-" + string(r.Window)
}

// String describes the rule in words, for error messages.
func (r Rule) String() string {
	what, whose, a := "call", "per "+string(r.Scope), "a"
	if r.Unit == Tokens {
		what = "token"
	}
	if r.Limit != 1 {
		what += "s"
	}
	if r.Window == Hour {
		a = "an"
	}
	if r.Agent != "" {
		whose = "of the agent " + r.Agent
	}
	return fmt.Sprintf("%d %s %s %s %s", r.Limit, what, a, r.Window, whose)
}

// reservedTokens returns what a rule of tokens reserves for a call with this estimate.
func (r Rule) reservedTokens(tokens int64) int64 { return min(tokens, r.Limit) }

// apiKeyPrefix begins the subject of a caller with an API key; it is tenancy.APIKeySubjectPrefix.
const apiKeyPrefix = "key:"

// Caller identifies whose call of which agent is counted.
type Caller struct {
	Agent string
	Owner agentsvc.Owner
	// Session is the context of the call: for one that opens a context, the new one.
	Session agentsvc.ContextID
}

// isAnonymous reports whether the caller has no credential; authz.AnonymousPrincipal has this owner.
func (c Caller) isAnonymous() bool { return c.Owner == agentsvc.Owner{Subject: "anonymous"} }

// counterFor returns the name of the counter for a call of c, and whether the rule concerns the call. Names that
// callers choose are hashed, so that all counter names are of bounded length.
func (r Rule) counterFor(c Caller) (counter string, ok bool) {
	var of string
	switch r.Scope {
	case PerApp:
	case PerAgent:
		of, ok = c.Agent, r.Agent == "" || r.Agent == c.Agent
		if !ok {
			return "", false
		}
	case PerKey:
		if !strings.HasPrefix(c.Owner.Subject, apiKeyPrefix) {
			return "", false
		}
		of = ownerKey(c.Owner)
	case PerUser:
		of = ownerKey(c.Owner)
	default: // PerSession
		of = ownerKey(c.Owner) + "\x00" + string(c.Session)
	}
	sum := sha256.Sum256([]byte(of))
	return r.Name() + ":" + base64.RawURLEncoding.EncodeToString(sum[:16]), true
}

// ownerKey identifies an owner; the NUL separates the parts unambiguously.
func ownerKey(o agentsvc.Owner) string { return o.Issuer + "\x00" + o.Subject }

// State is the state of a rule for one caller.
type State struct {
	Rule
	Used int64
	// Start and Reset are the start and the end of the window.
	Start time.Time
	Reset time.Time
	// Now is the time of the backend's clock.
	Now time.Time
}

// Remaining returns what is left of the limit in the window.
func (s State) Remaining() int64 { return max(0, s.Limit-s.Used) }

// RetryAfter returns the time until the window ends, in whole seconds, at least one.
func (s State) RetryAfter() time.Duration { return wholeSeconds(s.Reset.Sub(s.Now)) }

// TightestState returns the state with the smallest remaining part of its limit; of several the one whose window ends
// last. states must not be empty.
func TightestState(states []State) State {
	least := states[0]
	for _, s := range states[1:] {
		left, leastLeft := float64(s.Remaining())/float64(s.Limit), float64(least.Remaining())/float64(least.Limit)
		if left < leastLeft || left == leastLeft && s.Reset.After(least.Reset) {
			least = s
		}
	}
	return least
}
