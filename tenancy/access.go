package tenancy

import (
	"errors"
	"time"

	"stoa/tenancy/db"
)

// CredentialKind is what a request showed for itself, as far as it was verified without knowing any app.
type CredentialKind int

// The kinds of credentials.
const (
	NoCredential       CredentialKind = iota // none at all
	InvalidCredential                        // one that is not good, for whatever reason
	TokenCredential                          // a good token
	KeyCredential                            // a good API key
	OperatorCredential                       // the admin secret or an operator's token
)

// AccessRequest is a request at the door. It is decided in two steps: [Router.FindApp] finds the app, [AccessRequest.CheckApp] lets in once
// its record is there.
type AccessRequest struct {
	Address        Address
	Credential     CredentialKind
	AppID          db.ID         // the app that the credential carries by id, "" if it does not
	AppName        string        // the app that the credential carries by name, "" if it does not
	Subject        string        // of the token
	IssuedAt       time.Time     // of the token
	ClockSkew      time.Duration // how far the clock of the token's issuer may be ahead
	Discovery      bool          // it asks for a card or a list of agents, which visibility guards
	AllowAnonymous bool          // the default app takes callers without a credential
}

// targetApp tells which app v is for: by id, or else by name.
func (v *AccessRequest) targetApp() (id db.ID, name string, err error) {
	switch v.Credential {
	case TokenCredential, KeyCredential:
		switch {
		case v.AppID != "":
			return v.AppID, "", nil
		case v.AppName != "":
			return "", v.AppName, nil
		}
		return DefaultID, "", nil
	case OperatorCredential:
		return "", "", ErrOperator
	case NoCredential:
		if v.Address.unknown {
			return "", "", v.missingAppError()
		}
		if name = v.Address.App; name == "" {
			name = DefaultName
		}
		if v.Discovery || v.isOpenDefault() {
			return "", name, nil
		}
	}
	return "", "", ErrUnauthenticated
}

// missingAppError is the answer about an app that is not there: to a good credential it says that its app is gone, and no
// more to anyone else than that nothing is here.
func (v *AccessRequest) missingAppError() error {
	if v.Credential == NoCredential && (v.Discovery || v.isOpenDefault()) {
		return errNoApp
	}
	return ErrUnauthenticated
}

func (v *AccessRequest) isOpenDefault() bool {
	return v.AllowAnonymous && (v.Address.App == "" || v.Address.App == DefaultName)
}

var errRevoked = errorOfKind(ErrUnauthenticated, "a token from before the tokens of its app or its subject were revoked")

// CheckApp decides on the record of the app that [Router.FindApp] found. err is what reading the record returned: it may be
// nil, [ErrNotFound] or [ErrSuspended], any other is passed on. What Admit returns is the answer to the caller.
//
//	no longer there, or the token was revoked    ErrUnauthenticated; to a look around ErrNotFound
//	another app in the address                   ErrNotFound
//	suspended                                    ErrSuspended; to a look around ErrNotFound
func (v *AccessRequest) CheckApp(app *App, err error) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return v.missingAppError()
	case err != nil && !errors.Is(err, ErrSuspended):
		return err
	case app.Status == Deleting:
		return v.missingAppError()
	case v.Credential == TokenCredential && app.IsTokenRevoked(v.Subject, v.IssuedAt, v.ClockSkew):
		return errRevoked
	case v.Address.unknown || v.Address.App != "" && v.Address.App != app.Name:
		return errNoApp
	case app.Status == Suspended && v.Credential == NoCredential:
		return errNoApp
	case app.Status == Suspended:
		return ErrSuspended
	}
	return nil
}
