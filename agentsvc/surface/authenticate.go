package surface

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"stoa/agentsvc/app"
	"stoa/agentsvc/config"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/tenancy"
)

// Credentials is what a caller shows at the door, in whatever dialect.
type Credentials struct {
	BearerToken   string // bearer token, "" = none
	Host          string // as it was addressed, with or without a port
	Path          string
	ClientAddress string                   // address of the caller
	Discovery     bool                     // it asks what is here, not for an agent's work
	Signed        bool                     // it shows no credential: what it asks for is proven by [Request.Prove] or refused
	Header        func(name string) string // what else the caller shows; nil = nothing
}

// Request is a caller inside an app.
type Request struct {
	Principal authz.Principal
	App       *tenancy.App

	runtime     *app.App
	policy      *authz.Policy
	tasks       *task.Service
	address     tenancy.Address
	server      *Server
	record      *requestRecord // nil outside HTTP
	credentials Credentials
	releaseApp  func()

	cancelReservation func() // what limits reserve for a call, nil = nothing
}

// Authenticate finds out who knocks and which app it is for, and lets the caller in or says why not. Whoever is let in must
// [Request.ReleaseApp].
func (s *Server) Authenticate(ctx context.Context, k Credentials) (*Request, error) {
	if k.Signed {
		k.BearerToken, k.Discovery = "", true
	}
	p, kind, reason := s.verifyCredential(ctx, k)
	if kind == tenancy.InvalidCredential && !errors.Is(reason, authz.ErrUnauthenticated) {
		return nil, reason // not the caller's fault: whether the credential is good cannot be known at present
	}
	at := s.options.Router.ParseAddress(k.Host, k.Path)
	request := tenancy.AccessRequest{
		Address: at, Credential: kind, AppID: p.App, AppName: p.AppName, Subject: p.Subject, IssuedAt: p.Issued, ClockSkew: p.MaxClockAhead,
		Discovery: s.isDiscovery(k, at), AllowAnonymous: s.options.Auth.AllowsAnonymous(at.Path),
	}
	id, err := s.options.Router.FindApp(ctx, &request)
	if err != nil {
		return nil, toPublicError(err, reason)
	}
	runtime, record, release, err := s.options.Runtimes.Acquire(ctx, id)
	admitted := err == nil
	if kind == tenancy.KeyCredential && record != nil {
		p, reason = s.options.Keys.VerifyKey(ctx, k.BearerToken, record.Generation)
		err = cmp.Or(reason, err)
	}
	if err = request.CheckApp(record, err); err == nil && kind == tenancy.NoCredential && !k.Discovery {
		err = s.pageGuard.checkRequest(k, at.Host != "")
	}
	if err != nil {
		if admitted {
			release()
		}
		return nil, toPublicError(err, reason)
	}
	switch {
	case k.Signed:
		p = authz.AnonymousPrincipal(record.ID, record.Name)
	case kind == tenancy.NoCredential:
		p = s.newAnonymousPrincipal(record)
	}
	p.App, p.AppName = record.ID, record.Name // a token may have named its app by name alone
	v := &Request{
		Principal: p, App: record, runtime: runtime, tasks: runtime.Tasks(), address: at, server: s, releaseApp: release, credentials: k,
	}
	if v.policy, err = runtime.Policy(record); err != nil {
		v.ReleaseApp()
		return nil, err
	}
	if kind == tenancy.NoCredential && !k.Signed && record.ID != tenancy.DefaultID && len(v.Cards()) == 0 {
		v.ReleaseApp()
		return nil, errNoApp
	}
	return v, nil
}

// requestHeader returns what else the caller shows.
func (v *Request) requestHeader(name string) string {
	if v.credentials.Header == nil {
		return ""
	}
	return v.credentials.Header(name)
}

// verifyCredential finds out what the credential is worth, and for a bad one why it is bad.
func (s *Server) verifyCredential(ctx context.Context, k Credentials) (authz.Principal, tenancy.CredentialKind, error) {
	switch {
	case k.BearerToken == "":
		return authz.Principal{}, tenancy.NoCredential, nil
	case authz.IsToken(k.BearerToken):
		p, err := s.options.Verifier.VerifyToken(ctx, k.BearerToken)
		switch {
		case err != nil:
			return p, tenancy.InvalidCredential, err
		case p.Platform:
			return p, tenancy.OperatorCredential, nil
		}
		return p, tenancy.TokenCredential, nil
	case authz.IsAPIKey(k.BearerToken) && s.options.Keys != nil:
		p, err := s.options.Keys.VerifyKey(ctx, k.BearerToken, 0)
		if err != nil {
			return p, tenancy.InvalidCredential, err
		}
		return p, tenancy.KeyCredential, nil
	}
	// The admin secret does not belong here. Guesses at it are slowed down, without telling.
	if p, err := s.misplacedSecret.VerifySecret(k.ClientAddress, k.BearerToken); err == nil {
		return p, tenancy.OperatorCredential, nil
	}
	return authz.Principal{}, tenancy.InvalidCredential, authz.ErrUnauthenticated
}

// toPublicError returns what the caller is told of err. Every app that is not there is the same answer, the reason for a
// refused credential is for the log, and what is wrong with an app's configuration is not for its callers.
func toPublicError(err, reason error) error {
	var document *config.Error
	switch {
	case errors.Is(err, tenancy.ErrNotFound):
		return errNoApp
	case reason != nil && errors.Is(err, tenancy.ErrUnauthenticated):
		return reason
	case errors.As(err, &document):
		return fmt.Errorf("%w: %v", tenancy.ErrUnavailable, err) //nolint:errorlint // the chain is cut on purpose
	}
	return err
}

// CheckTenant checks what a caller names beside the credential as the tenant that a call of an agent is for, as A2A's field of
// that name does: {app}, {agent} or {app}/{agent}. It returns an error if that is not where the caller is.
func (v *Request) CheckTenant(tenant, agent string) error {
	switch tenant {
	case "", v.App.Name, agent, v.App.Name + "/" + agent:
		return nil
	}
	return errNoApp
}

// ReleaseApp gives the app back: it may then be replaced and closed. It may be called again.
func (v *Request) ReleaseApp() {
	v.releaseReservation()
	if v.releaseApp != nil {
		v.releaseApp()
		v.releaseApp = nil
	}
	if v.record != nil {
		v.record.bodyReservation.release()
	}
}

// authenticateHTTP is [Server.Authenticate] for HTTP.
func (s *Server) authenticateHTTP(r *http.Request, route *Route) (*Request, error) {
	k, err := s.readCredentials(r)
	if err != nil && !route.Signed {
		return nil, err
	}
	k.Discovery, k.Signed = route.Discovery, route.Signed
	v, err := s.Authenticate(r.Context(), k)
	if route.Signed && errors.Is(err, errNoApp) {
		err = ErrNoWebhook
	}
	return v, err
}

// readCredentials returns what r shows at the door.
func (s *Server) readCredentials(r *http.Request) (Credentials, error) {
	credential, err := bearerToken(r)
	return Credentials{BearerToken: credential, Host: r.Host, Path: r.URL.Path, ClientAddress: s.clientAddress(r), Header: r.Header.Get}, err
}

// bearerToken returns the credential of a request, "" if it shows none. Whatever else stands in the header is a bad one.
func bearerToken(r *http.Request) (string, error) {
	lines := r.Header.Values("Authorization")
	if len(lines) == 0 {
		return subprotocolBearer(r)
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if token = strings.TrimSpace(token); len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", authz.ErrUnauthenticated
	}
	return token, nil
}

// authenticateOperator lets the platform's operator in, and nobody else.
func (s *Server) authenticateOperator(r *http.Request) (authz.Principal, error) {
	if s.options.Router.ParseAddress(r.Host, r.URL.Path).App != "" {
		return authz.Principal{}, errNoPath
	}
	credential, err := bearerToken(r)
	if err != nil {
		return authz.Principal{}, err
	}
	var p authz.Principal
	switch {
	case authz.IsToken(credential):
		p, err = s.options.Verifier.VerifyToken(r.Context(), credential)
	case authz.IsAPIKey(credential) && s.options.Keys != nil:
		p, err = s.options.Keys.VerifyKey(r.Context(), credential, 0)
	default:
		return s.adminSecret.VerifySecret(s.clientAddress(r), credential)
	}
	if err == nil && !p.Platform {
		err = fmt.Errorf("%w: the admin API is the platform operator's", authz.ErrDenied)
	}
	return p, err
}
