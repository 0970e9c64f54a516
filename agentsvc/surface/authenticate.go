package surface

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"

	"stoa/agentsvc"
	"stoa/agentsvc/surface/apierror"
	"stoa/agentsvc/task"
	"stoa/authz"
	"stoa/ratelimit"
	"stoa/tenancy"
	"stoa/tenancy/apikey"
	"stoa/tenancy/audit"
	"stoa/tenancy/router"
)

// Credentials are what a request of any protocol shows about its caller and its app, before anything is verified.
type Credentials struct {
	// BearerToken is a token, an API key or the admin secret, "" = none.
	BearerToken string
	// Host and Path are as the client addressed the server; the host may have a port. Both may name an app.
	Host string
	Path string
	// ClientAddress is the client's address, by which failed credentials are counted.
	ClientAddress string
	// Discovery is [Route].Discovery: without a credential the request may name any app. Authenticate treats a signed
	// request as one.
	Discovery bool
	// Signed is [Route].Signed: no credential is verified; the handler verifies the signature.
	Signed bool
	// Header returns another header of the request, for credentials of agents and for [crossorigin.PageGuard]; nil = there are
	// none.
	Header func(name string) string
}

// Request is an authenticated request: who calls, in which app and what the caller may do there ([Access]), and what is
// reserved for the call. It is bound to the revision of the app's configuration that was current when it was
// authenticated. One goroutine uses it at a time.
type Request struct {
	Access
	// Tasks is the app's task service, which is bound to the app. It goes on working after ReleaseApp.
	Tasks *task.Service

	// stream is [Observation].Stream.
	stream bool
	// releaseApp returns Runtime to the cache; nil once it has been called.
	releaseApp func()
	// releaseTokens releases what limits reserved for the call, unless a turn was written that carries the
	// reservation; nil = nothing is reserved. Set by AdmitCall, cleared by releaseReservedTokens.
	releaseTokens func()
}

// Authenticate verifies the credential, decides which app the request is for and returns the caller inside it. The
// caller of Authenticate must call [Request.ReleaseApp].
//
// All protocols get their app here, in three steps. Package authz reads from the verified credential which app it
// belongs to. [router.Router.FindApp] takes that app, or without a credential the one that the host or the path names.
// [router.AppRequest.CheckApp] refuses it by its record: if it is suspended or deleted, if the token was revoked, and
// with "no such app" if host or path name another one.
//
// The error is what the caller may see, see toPublicError. An error that is not the caller's fault, such as unreachable
// signing keys, is returned as it is.
func (s *Server) Authenticate(ctx context.Context, k Credentials) (*Request, error) {
	if k.Signed {
		k.BearerToken, k.Discovery = "", true
	}
	p, kind, reason := s.credentials.verifyCredential(ctx, k)
	// Whether the credential is good cannot be decided now. The caller gets "unavailable", not "unauthenticated".
	if kind == router.InvalidCredential && !errors.Is(reason, agentsvc.CodeUnauthenticated) {
		return nil, reason
	}
	at := s.options.Router.ParseAddress(k.Host, k.Path)
	request := router.AppRequest{
		Address: at, Credential: kind, AppID: p.App, AppName: p.AppName, Subject: p.Subject, IssuedAt: p.Issued, ClockSkew: p.MaxClockAhead,
		Discovery: k.Discovery, AllowAnonymous: s.options.Auth.AllowsAnonymous(at.Path),
	}
	id, err := s.options.Router.FindApp(ctx, &request)
	if err != nil {
		err = nameRefusedApp(toPublicError(err, reason), p)
		s.credentials.reportFailedCredential(audit.FailedCredential{Credential: credentialKind(k.BearerToken), Reason: ReasonInvalid, Client: k.ClientAddress}, err)
		return nil, err
	}
	runtime, record, release, err := s.options.Runtimes.Acquire(ctx, id)
	acquired := err == nil
	// verifyCredential did not know the key's app and may have used a cached key. With the app's generation, a key that
	// was cached at an earlier one is read again, so that a revoked key is refused. This call also records the key's
	// use.
	if kind == router.KeyCredential && record != nil {
		p, reason = s.options.Keys.VerifyKey(ctx, k.BearerToken, record.Generation)
		err = cmp.Or(reason, err)
	}
	// A request with a good credential is not checked for foreign pages: browsers do not add one by themselves.
	if err = request.CheckApp(record, err); err == nil && kind == router.NoCredential && !k.Discovery {
		err = s.pageGuard.CheckRequest(k.Host, k.Header, at.Host != "")
	}
	if err != nil {
		if acquired {
			release()
		}
		err = nameRefusedApp(toPublicError(err, reason), p)
		s.credentials.reportFailedCredential(audit.FailedCredential{AppID: id, Credential: credentialKind(k.BearerToken), Reason: reasonRevoked, Client: k.ClientAddress}, err)
		return nil, err
	}
	switch {
	case k.Signed:
		p = authz.AnonymousPrincipal(record.ID, record.Name)
	case kind == router.NoCredential:
		p = s.credentials.newAnonymousPrincipal(record)
	}
	// A token may have named its app by name alone.
	p.App, p.AppName = record.ID, record.Name
	v := &Request{
		Access: Access{Principal: p, App: record, Runtime: runtime, address: at, server: s, credentials: k}, Tasks: runtime.Tasks(), releaseApp: release,
	}
	if v.policy, err = runtime.Policy(record); err != nil {
		v.ReleaseApp()
		return nil, err
	}
	// To anonymous callers an app without public agents must look like one that does not exist.
	if kind == router.NoCredential && !k.Signed && record.ID != tenancy.DefaultID && !seesCards(&v.Access) {
		v.ReleaseApp()
		return nil, apierror.ErrNoApp
	}
	return v, nil
}

// requestHeader returns a header of the request, "" where the protocol has none.
func (a *Access) requestHeader(name string) string {
	if a.credentials.Header == nil {
		return ""
	}
	return a.credentials.Header(name)
}

// credentialVerifier verifies credentials. It is read-only.
type credentialVerifier struct {
	Authentication
	// adminSecret is verified at the admin API.
	adminSecret *authz.AdminSecret
	// misplacedSecret is the same secret with a throttle of its own, for tenant routes, where the secret is refused:
	// failed attempts on tenant routes must not lock the operator out of the admin API.
	misplacedSecret *authz.AdminSecret
}

// newCredentialVerifier returns an error for an invalid admin secret.
func newCredentialVerifier(o Authentication) (c credentialVerifier, err error) {
	c.Authentication = o
	if c.AdminAttempts == nil {
		c.AdminAttempts = ratelimit.NewThrottle(ratelimit.ThrottleOptions{})
	}
	if c.adminSecret, err = authz.NewAdminSecret(o.AdminSecret, c.AdminAttempts); err != nil {
		return c, err
	}
	c.misplacedSecret, err = authz.NewAdminSecret(o.AdminSecret, ratelimit.NewThrottle(ratelimit.ThrottleOptions{}))
	return c, err
}

// verifyCredential verifies the credential without knowing an app. It returns the principal, what kind of credential it
// is, and for an invalid one the reason, which is for the log.
func (c *credentialVerifier) verifyCredential(ctx context.Context, k Credentials) (authz.Principal, router.CredentialKind, error) {
	switch {
	case k.BearerToken == "":
		return authz.Principal{}, router.NoCredential, nil
	case authz.IsToken(k.BearerToken):
		p, err := c.Verifier.VerifyToken(ctx, k.BearerToken)
		switch {
		case err != nil:
			return p, router.InvalidCredential, err
		case p.Platform:
			return p, router.OperatorCredential, nil
		}
		return p, router.TokenCredential, nil
	case apikey.IsKey(k.BearerToken) && c.Keys != nil:
		p, err := c.Keys.VerifyKey(ctx, k.BearerToken, 0)
		if err != nil {
			return p, router.InvalidCredential, err
		}
		return p, router.KeyCredential, nil
	}
	// The admin secret is good at the admin API only: here even the right one is refused, by [router.ErrOperator]
	// (403). Wrong guesses are throttled, which the response does not reveal.
	if p, err := c.misplacedSecret.VerifySecret(ctx, k.ClientAddress, k.BearerToken); err == nil {
		return p, router.OperatorCredential, nil
	}
	return authz.Principal{}, router.InvalidCredential, authz.ErrUnauthenticated
}

// verifyOperator verifies a credential at the admin API and returns its principal. The principal of an app's credential
// is returned as well, without an error: the caller checks whether it is the operator's.
func (c *credentialVerifier) verifyOperator(ctx context.Context, k Credentials) (authz.Principal, error) {
	switch {
	case authz.IsToken(k.BearerToken):
		return c.Verifier.VerifyToken(ctx, k.BearerToken)
	case apikey.IsKey(k.BearerToken) && c.Keys != nil:
		return c.Keys.VerifyKey(ctx, k.BearerToken, 0)
	}
	return c.adminSecret.VerifySecret(ctx, k.ClientAddress, k.BearerToken)
}

// toPublicError returns err in the form that the caller may see. Every app that does not exist or is not the caller's
// gives the same error. The reason for a refused credential replaces err: Classify shows a fixed text for it and
// the log line names the reason.
func toPublicError(err, reason error) error {
	switch {
	case errors.Is(err, agentsvc.CodeNotFound):
		return apierror.ErrNoApp
	case reason != nil && errors.Is(err, router.ErrUnauthenticated):
		return reason
	}
	return err
}

// refusedApp is an error of a request with a valid credential, with the name of the app that the credential belongs to,
// which the request's log line names. The app may be suspended or no longer exist.
type refusedApp struct {
	error
	app string
}

// Unwrap returns the error for the caller.
func (e *refusedApp) Unwrap() error { return e.error }

// nameRefusedApp adds the app of a verified credential to the error that refuses its request. p is zero for a credential
// that could not be verified: such a name proves nothing.
func nameRefusedApp(err error, p authz.Principal) error {
	if !tenancy.IsValidAppName(p.AppName) {
		return err
	}
	return &refusedApp{err, p.AppName}
}

// CheckTenant checks the tenant field of an A2A request, which may be "", {app}, {agent} or {app}/{agent}. It returns
// "no such app" if the field names anything else than where the request is: the field never chooses the app.
func (a *Access) CheckTenant(tenant, agent string) error {
	switch tenant {
	case "", a.App.Name, agent, a.App.Name + "/" + agent:
		return nil
	}
	return apierror.ErrNoApp
}

// ReleaseApp returns the app's runtime to the cache, which may then replace and close it, and releases what is reserved
// for the call and for the request's body. It may be called more than once.
func (req *Request) ReleaseApp() {
	req.releaseReservedTokens()
	if req.releaseApp != nil {
		req.releaseApp()
		req.releaseApp = nil
	}
	if req.requestRecord != nil {
		req.requestRecord.body.Release()
	}
}

// authenticateHTTP is [Server.Authenticate] for the HTTP request r. On a signed route an unknown app is answered like
// an unknown webhook, so that senders cannot find out which apps exist.
func (s *Server) authenticateHTTP(r *http.Request, route *Route) (*Request, error) {
	k, err := s.readCredentials(r)
	if err != nil && !route.Signed {
		s.credentials.reportFailedCredential(audit.FailedCredential{Credential: otherCredential, Reason: ReasonInvalid, Client: k.ClientAddress}, err)
		return nil, err
	}
	k.Discovery, k.Signed = route.Discovery, route.Signed
	v, err := s.Authenticate(r.Context(), k)
	if route.Signed && errors.Is(err, apierror.ErrNoApp) {
		err = apierror.ErrNoWebhook
	}
	return v, err
}

// readCredentials returns the credentials of r, unverified. The error is for a malformed Authorization header.
func (s *Server) readCredentials(r *http.Request) (Credentials, error) {
	credential, err := bearerToken(r)
	return Credentials{BearerToken: credential, Host: r.Host, Path: routePath(r), ClientAddress: s.proxies.clientAddress(r), Header: joinedHeader(r.Header)}, err
}

// joinedHeader returns the function that returns a header's values with commas between them (RFC 9110, 5.3). With the
// first one alone, a second Origin or a second credential would not be checked.
func joinedHeader(h http.Header) func(name string) string {
	return func(name string) string { return strings.Join(h.Values(name), ", ") }
}

// bearerToken returns the bearer token of a request, "" if it has none. It returns [authz.ErrUnauthenticated] for
// another scheme, an empty token and more than one Authorization header. A WebSocket handshake may carry the token as a
// subprotocol.
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

// authenticateOperator returns the platform operator's principal: of the admin secret, or of a platform token or API
// key. Any other good credential is an error with [agentsvc.CodeDenied]. An address that names an app has no admin API:
// ErrNoPath.
func (s *Server) authenticateOperator(r *http.Request) (authz.Principal, error) {
	if s.options.Router.ParseAddress(r.Host, routePath(r)).App != "" {
		return authz.Principal{}, apierror.ErrNoPath
	}
	k, err := s.readCredentials(r)
	if err != nil {
		s.credentials.reportFailedCredential(audit.FailedCredential{Credential: otherCredential, Reason: ReasonInvalid, Client: k.ClientAddress}, err)
		return authz.Principal{}, err
	}
	p, err := s.credentials.verifyOperator(r.Context(), k)
	refused := err
	if errors.Is(err, agentsvc.CodeExhausted) {
		refused = authz.ErrUnauthenticated // a wrong admin secret beyond the allowed number
	}
	s.credentials.reportFailedCredential(audit.FailedCredential{Credential: credentialKind(k.BearerToken), Reason: ReasonInvalid, Client: k.ClientAddress}, refused)
	if err == nil && !p.Platform {
		err = agentsvc.NewError(agentsvc.CodeDenied, "permission denied: the admin API is the platform operator's")
	}
	return p, err
}
