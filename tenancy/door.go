package tenancy

import (
	"errors"
	"time"

	"stoa/tenancy/db"
)

// Credential is what a request showed for itself, as far as it was verified without knowing any app.
type Credential int

// The kinds of credentials.
const (
	None     Credential = iota // none at all
	Bad                        // one that is not good, for whatever reason
	Token                      // a good token
	Key                        // a good API key
	Operator                   // the admin secret or an operator's token
)

// Visit is a request at the door. It is decided in two steps: [Router.Route] finds the app, [Visit.Admit] lets in once
// its record is there.
type Visit struct {
	Address    Address
	Credential Credential
	AppID      db.ID         // the app that the credential carries by id, "" if it does not
	AppName    string        // the app that the credential carries by name, "" if it does not
	Subject    string        // of the token
	IssuedAt   time.Time     // of the token
	Ahead      time.Duration // how far the clock of the token's issuer may be ahead
	Discovery  bool          // it asks for a card or a list of agents, which visibility guards
	Open       bool          // the default app takes callers without a credential
}

// target tells which app v is for: by id, or else by name.
func (v *Visit) target() (id db.ID, name string, err error) {
	switch v.Credential {
	case Token, Key:
		switch {
		case v.AppID != "":
			return v.AppID, "", nil
		case v.AppName != "":
			return "", v.AppName, nil
		}
		return DefaultID, "", nil
	case Operator:
		return "", "", ErrOperator
	case None:
		if v.Address.unknown {
			return "", "", v.refused()
		}
		if name = v.Address.App; name == "" {
			name = DefaultName
		}
		if v.Discovery || v.openDefault() {
			return "", name, nil
		}
	}
	return "", "", ErrUnauthenticated
}

// refused is the answer about an app that is not there: to a good credential it says that its app is gone, and no
// more to anyone else than that nothing is here.
func (v *Visit) refused() error {
	if v.Credential == None && (v.Discovery || v.openDefault()) {
		return errNoApp
	}
	return ErrUnauthenticated
}

func (v *Visit) openDefault() bool {
	return v.Open && (v.Address.App == "" || v.Address.App == DefaultName)
}

var errRevoked = refuse(ErrUnauthenticated, "a token from before the tokens of its app or its subject were revoked")

// Admit decides on the record of the app that [Router.Route] found. err is what reading the record returned: it may be
// nil, [ErrNotFound] or [ErrSuspended], any other is passed on. What Admit returns is the answer to the caller.
//
//	no longer there, or the token was revoked    ErrUnauthenticated; to a look around ErrNotFound
//	another app in the address                   ErrNotFound
//	suspended                                    ErrSuspended; to a look around ErrNotFound
func (v *Visit) Admit(app *App, err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return v.refused()
	case err != nil && !errors.Is(err, ErrSuspended):
		return err
	case app.Status == Deleting:
		return v.refused()
	case v.Credential == Token && app.TooOld(v.Subject, v.IssuedAt, v.Ahead):
		return errRevoked
	case v.Address.unknown || v.Address.App != "" && v.Address.App != app.Name:
		return errNoApp
	case app.Status == Suspended && v.Credential == None:
		return errNoApp
	case app.Status == Suspended:
		return ErrSuspended
	}
	return nil
}
