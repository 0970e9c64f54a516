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

// Knock is what a caller shows at the door, in whatever dialect.
type Knock struct {
	Credential string // bearer token, "" = none
	Host       string // as it was addressed, with or without a port
	Path       string
	Client     string                   // address of the caller
	Discovery  bool                     // it asks what is here, not for an agent's work
	Signed     bool                     // it shows no credential: what it asks for is proven by [Visit.Prove] or refused
	Header     func(name string) string // what else the caller shows; nil = nothing
}

// Visit is a caller inside an app.
type Visit struct {
	Principal authz.Principal
	App       *tenancy.App

	house   *app.App
	policy  *authz.Policy
	tasks   *task.Service
	address tenancy.Address
	server  *Server
	rec     *record // nil outside HTTP
	knock   Knock
	release func()

	settle func() // what limits reserve for a call, nil = nothing
}

// Enter finds out who knocks and which app it is for, and lets the caller in or says why not. Whoever is let in must
// [Visit.Leave].
func (s *Server) Enter(ctx context.Context, k Knock) (*Visit, error) {
	if k.Signed {
		k.Credential, k.Discovery = "", true
	}
	p, kind, why := s.identify(ctx, k)
	if kind == tenancy.Bad && !errors.Is(why, authz.ErrUnauthenticated) {
		return nil, why // not the caller's fault: whether the credential is good cannot be known at present
	}
	at := s.options.Router.Address(k.Host, k.Path)
	ask := tenancy.Visit{
		Address: at, Credential: kind, AppID: p.App, AppName: p.AppName, Subject: p.Subject, IssuedAt: p.Issued, Ahead: p.Ahead,
		Discovery: s.looksAround(k, at), Open: s.options.Auth.Open(at.Path),
	}
	id, err := s.options.Router.Route(ctx, &ask)
	if err != nil {
		return nil, answer(err, why)
	}
	house, record, release, err := s.options.Live.Acquire(ctx, id)
	admitted := err == nil
	if kind == tenancy.Key && record != nil {
		p, why = s.options.Keys.Check(ctx, k.Credential, record.Generation)
		err = cmp.Or(why, err)
	}
	if err = ask.Admit(record, err); err == nil && kind == tenancy.None && !k.Discovery {
		err = s.pages.check(k, at.Host != "")
	}
	if err != nil {
		if admitted {
			release()
		}
		return nil, answer(err, why)
	}
	switch {
	case k.Signed:
		p = authz.Anonymous(record.ID, record.Name)
	case kind == tenancy.None:
		p = s.stranger(record)
	}
	p.App, p.AppName = record.ID, record.Name // a token may have named its app by name alone
	v := &Visit{
		Principal: p, App: record, house: house, tasks: house.Tasks(), address: at, server: s, release: release, knock: k,
	}
	if v.policy, err = house.Policy(record); err != nil {
		v.Leave()
		return nil, err
	}
	if kind == tenancy.None && !k.Signed && record.ID != tenancy.DefaultID && len(v.Cards()) == 0 {
		v.Leave()
		return nil, errNoApp
	}
	return v, nil
}

// header returns what else the caller shows.
func (v *Visit) header(name string) string {
	if v.knock.Header == nil {
		return ""
	}
	return v.knock.Header(name)
}

// identify finds out what the credential is worth, and for a bad one why it is bad.
func (s *Server) identify(ctx context.Context, k Knock) (authz.Principal, tenancy.Credential, error) {
	switch {
	case k.Credential == "":
		return authz.Principal{}, tenancy.None, nil
	case authz.IsToken(k.Credential):
		p, err := s.options.Verifier.Verify(ctx, k.Credential)
		switch {
		case err != nil:
			return p, tenancy.Bad, err
		case p.Platform:
			return p, tenancy.Operator, nil
		}
		return p, tenancy.Token, nil
	case authz.IsAPIKey(k.Credential) && s.options.Keys != nil:
		p, err := s.options.Keys.Check(ctx, k.Credential, 0)
		if err != nil {
			return p, tenancy.Bad, err
		}
		return p, tenancy.Key, nil
	}
	// The admin secret does not belong here. Guesses at it are slowed down, without telling.
	if p, err := s.stray.Check(k.Client, k.Credential); err == nil {
		return p, tenancy.Operator, nil
	}
	return authz.Principal{}, tenancy.Bad, authz.ErrUnauthenticated
}

// answer returns what the caller is told of err. Every app that is not there is the same answer, the reason for a
// refused credential is for the log, and what is wrong with an app's configuration is not for its callers.
func answer(err, why error) error {
	var document *config.Error
	switch {
	case errors.Is(err, tenancy.ErrNotFound):
		return errNoApp
	case why != nil && errors.Is(err, tenancy.ErrUnauthenticated):
		return why
	case errors.As(err, &document):
		return fmt.Errorf("%w: %v", tenancy.ErrUnavailable, err) //nolint:errorlint // the chain is cut on purpose
	}
	return err
}

// Named checks what a caller names beside the credential as the tenant that a call of an agent is for, as A2A's field of
// that name does: {app}, {agent} or {app}/{agent}. It returns an error if that is not where the caller is.
func (v *Visit) Named(tenant, agent string) error {
	switch tenant {
	case "", v.App.Name, agent, v.App.Name + "/" + agent:
		return nil
	}
	return errNoApp
}

// Leave gives the app back: it may then be replaced and closed. It may be called again.
func (v *Visit) Leave() {
	v.unhold()
	if v.release != nil {
		v.release()
		v.release = nil
	}
	if v.rec != nil {
		v.rec.held.release()
	}
}

// enter is [Server.Enter] for HTTP.
func (s *Server) enter(r *http.Request, route *Route) (*Visit, error) {
	k, err := s.knock(r)
	if err != nil && !route.Signed {
		return nil, err
	}
	k.Discovery, k.Signed = route.Discovery, route.Signed
	v, err := s.Enter(r.Context(), k)
	if route.Signed && errors.Is(err, errNoApp) {
		err = ErrNoWebhook
	}
	return v, err
}

// knock returns what r shows at the door.
func (s *Server) knock(r *http.Request) (Knock, error) {
	credential, err := bearer(r)
	return Knock{Credential: credential, Host: r.Host, Path: r.URL.Path, Client: s.client(r), Header: r.Header.Get}, err
}

// bearer returns the credential of a request, "" if it shows none. Whatever else stands in the header is a bad one.
func bearer(r *http.Request) (string, error) {
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

// operator lets the platform's operator in, and nobody else.
func (s *Server) operator(r *http.Request) (authz.Principal, error) {
	if s.options.Router.Address(r.Host, r.URL.Path).App != "" {
		return authz.Principal{}, errNoPath
	}
	credential, err := bearer(r)
	if err != nil {
		return authz.Principal{}, err
	}
	var p authz.Principal
	switch {
	case authz.IsToken(credential):
		p, err = s.options.Verifier.Verify(r.Context(), credential)
	case authz.IsAPIKey(credential) && s.options.Keys != nil:
		p, err = s.options.Keys.Check(r.Context(), credential, 0)
	default:
		return s.admin.Check(s.client(r), credential)
	}
	if err == nil && !p.Platform {
		err = fmt.Errorf("%w: the admin API is the platform operator's", authz.ErrDenied)
	}
	return p, err
}
