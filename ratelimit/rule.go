package ratelimit

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"stoa/agentsvc"
)

// Scope says whose calls are counted together.
type Scope string

// The scopes. A session is its owner's, and a call that names none counts under its user. A key is a caller that came
// with an API key: no other caller is counted. An agent is the one that is called, not those it calls in turn.
const (
	PerSession Scope = "session"
	PerUser    Scope = "user"
	PerKey     Scope = "key"
	PerAgent   Scope = "agent"
	PerApp     Scope = "app"
)

// Unit is what is counted.
type Unit string

// The units: calls, and the tokens that models take in and put out for them.
const (
	Calls  Unit = "count"
	Tokens Unit = "token"
)

// Rule is one limit.
type Rule struct {
	Scope  Scope
	Agent  string // the only one that a rule of the scope agent is about; "" = each agent, on its own
	Unit   Unit
	Window Window
	Limit  int64
}

// Name tells the rule from the others of its app. It says nothing of how much is allowed, so that a changed limit goes on
// with the count there is.
func (r Rule) Name() string {
	name := string(r.Scope)
	if r.Agent != "" {
		name += "-" + r.Agent
	}
	return name + "-" + string(r.Unit) + "-" + string(r.Window)
}

// String says what is allowed, in words.
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

// reservedTokens is what a rule of tokens holds for a call that is thought to use so many.
func (r Rule) reservedTokens(tokens int64) int64 { return min(tokens, r.Limit) }

// apiKeyPrefix is what the subject of an API key begins with.
const apiKeyPrefix = "key:"

// Caller is who calls what.
type Caller struct {
	Agent   string
	Owner   agentsvc.Owner
	Session agentsvc.ContextID // "" = none yet
}

// counterFor returns the name of the count that a call of c belongs to, and whether the rule is about it at all. What
// callers choose is hashed: no name is longer than others.
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
		if of = ownerKey(c.Owner); c.Session != "" {
			of += "\x00" + string(c.Session)
		}
	}
	sum := sha256.Sum256([]byte(of))
	return r.Name() + ":" + base64.RawURLEncoding.EncodeToString(sum[:16]), true
}

func ownerKey(o agentsvc.Owner) string { return o.Issuer + "\x00" + o.Subject }

// State is how a rule stands for somebody.
type State struct {
	Rule
	Used  int64
	Start time.Time // of the window
	Reset time.Time // its end
	Now   time.Time // by the clock of the place that counts
}

// Remaining is what is left in the window.
func (s State) Remaining() int64 { return max(0, s.Limit-s.Used) }

// RetryAfter is how long the window still lasts, in whole seconds.
func (s State) RetryAfter() time.Duration { return wholeSeconds(s.Reset.Sub(s.Now)) }

// TightestState returns the one of states that leaves the smallest part of its limit, and of several the one that lasts
// longest.
func TightestState(states []State) State {
	least := states[0]
	for _, s := range states[1:] {
		left, most := float64(s.Remaining())/float64(s.Limit), float64(least.Remaining())/float64(least.Limit)
		if left < most || left == most && s.Reset.After(least.Reset) {
			least = s
		}
	}
	return least
}
