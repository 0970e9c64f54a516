package router

import (
	"errors"
	"time"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

// CredentialKind is the kind of credential of a request, as verified before the app is known: signature, expiry and
// hash are checked, revocation is not.
type CredentialKind int

// The kinds of credentials.
const (
	// NoCredential is a request without a credential.
	NoCredential CredentialKind = iota
	// InvalidCredential is a credential that could not be verified, for whatever reason.
	InvalidCredential
	// TokenCredential is a verified token of a tenant.
	TokenCredential
	// KeyCredential is a verified API key.
	KeyCredential
	// OperatorCredential is the admin secret or an operator's token. It opens the admin API only.
	OperatorCredential
)

// AppRequest is what is known about a request when its app is looked up. It is decided in two steps, because the
// app's record must be loaded in between: [Router.FindApp] returns the app's id, [AppRequest.CheckApp] decides on
// its record.
//
// The credential, where there is one, decides alone which app is used. An app named by host or path must be the same one; it can never
// direct a token to another tenant.
type AppRequest struct {
	Address    Address
	Credential CredentialKind
	// AppID is the app in the credential, if the credential names it by id (API keys and tokens of Stoa's own issuer or
	// of an app's issuer); else "".
	AppID db.ID
	// AppName is the app in the credential, if the credential names it by name; else "". AppID takes precedence.
	AppName string
	// Subject and IssuedAt are the token's claims sub and iat.
	Subject  string
	IssuedAt time.Time
	// ClockSkew is how far the clock of the token's issuer may be ahead.
	ClockSkew time.Duration
	// Discovery is set for agent cards and lists of agents, and for signed deliveries. They need no credential here;
	// the visibility of each agent restricts what is returned, and the handler verifies the signature.
	Discovery bool
	// AllowAnonymous is set if the default app accepts requests without a credential.
	AllowAnonymous bool
}

// chooseApp returns the id or the name of the app that r is for: that of the credential, which package authz has read
// from it, and for a credential without an app the default app, whatever the address says. Only a request without a
// credential is directed by its address, and then only for discovery or to an open default app.
func (r *AppRequest) chooseApp() (id db.ID, name string, err error) {
	switch r.Credential {
	case TokenCredential, KeyCredential:
		switch {
		case r.AppID != "":
			return r.AppID, "", nil
		case r.AppName != "":
			return "", r.AppName, nil
		}
		return tenancy.DefaultID, "", nil
	case OperatorCredential:
		return "", "", ErrOperator
	case NoCredential:
		if r.Address.unknown {
			return "", "", r.missingAppError()
		}
		if name = r.Address.App; name == "" {
			name = tenancy.DefaultName
		}
		if r.Discovery || r.isOpenDefault() {
			return "", name, nil
		}
	}
	return "", "", ErrUnauthenticated
}

// missingAppError returns the error for an app that does not exist. Where no credential is needed it is
// [agentsvc.CodeNotFound]; else [ErrUnauthenticated], so that a caller cannot find out which apps exist.
func (r *AppRequest) missingAppError() error {
	if r.Credential == NoCredential && (r.Discovery || r.isOpenDefault()) {
		return errNoApp
	}
	if r.Credential == TokenCredential || r.Credential == KeyCredential {
		return errAppGone
	}
	return ErrUnauthenticated
}

// isOpenDefault reports whether r addresses the default app and that app accepts requests without a credential.
func (r *AppRequest) isOpenDefault() bool {
	return r.AllowAnonymous && (r.Address.App == "" || r.Address.App == tenancy.DefaultName)
}

// Errors that the decision returns, besides [agentsvc.CodeNotFound] and [tenancy.ErrSuspended].
var (
	// ErrUnauthenticated reports that a credential is missing or not valid, or was revoked.
	ErrUnauthenticated = agentsvc.NewUnauthenticatedError("a valid credential is required")
	// ErrOperator reports that the operator's credential was used where a tenant's is required.
	ErrOperator = agentsvc.NewError(agentsvc.CodeDenied, "the operator's credential is for /admin alone")
)

var errNoApp = agentsvc.NewError(agentsvc.CodeNotFound, "no such app")

// errAppGone has the text of ErrUnauthenticated for the caller and another reason for the log.
var errAppGone = agentsvc.NewUnauthenticatedError("the app of the credential does not exist")

var errRevoked = agentsvc.NewUnauthenticatedError("the token was issued before the tokens of its app or its subject were revoked")

// CheckApp decides on the record of the app that [Router.FindApp] returned. err is the error of loading the record:
// nil, [agentsvc.CodeNotFound] and [tenancy.ErrSuspended] are decided here, any other is returned unchanged. The result
// is the answer to the caller, the first line that applies:
//
//	app deleted                    ErrUnauthenticated; where no credential is needed CodeNotFound
//	token revoked                  ErrUnauthenticated
//	another app in the address     CodeNotFound
//	suspended                      ErrSuspended; without a credential CodeNotFound
//
// The revocation is checked before the address, so that a revoked token cannot be used to find out which apps exist.
func (r *AppRequest) CheckApp(app *tenancy.App, err error) error {
	switch {
	case errors.Is(err, agentsvc.CodeNotFound):
		return r.missingAppError()
	case err != nil && !errors.Is(err, tenancy.ErrSuspended):
		return err
	case app.Status == tenancy.Deleting:
		return r.missingAppError()
	case r.Credential == TokenCredential && app.IsTokenRevoked(r.Subject, r.IssuedAt, r.ClockSkew):
		return errRevoked
	case r.Address.unknown || r.Address.App != "" && r.Address.App != app.Name:
		return errNoApp
	case app.Status == tenancy.Suspended && r.Credential == NoCredential:
		return errNoApp
	case app.Status == tenancy.Suspended:
		return tenancy.ErrSuspended
	}
	return nil
}
