package mcp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"stoa/agentsvc"
	"stoa/agentsvc/tool"
)

// connector is a way to the server: the shared one, or that of one caller. It has at most one connection at a time and
// makes a new one when that is lost.
type connector struct {
	*Server
	// headers are sent with each HTTP request: the configured ones and the caller's credential. Read-only.
	headers map[string]string
	// ctx is the connector's lifetime; stop ends it and closes the connection.
	ctx  context.Context
	stop context.CancelFunc

	// mu guards the fields up to retryBackoff, and currentList.
	mu sync.Mutex
	// conn is the present connection, which may be lost; nil: none.
	conn *connection
	// dialDone is closed when the present attempt to connect ends; nil: no attempt is in progress.
	dialDone chan struct{}
	// dialErr is the error of the last attempt.
	dialErr error
	// nextDial is the earliest time of the next attempt.
	nextDial     time.Time
	retryBackoff *backoff.ExponentialBackOff

	// listMu serialises refreshList, so that concurrent turns cause one request. It is locked before mu.
	listMu sync.Mutex
	// currentList is the last list of this connector, guarded by mu; nil: never listed.
	currentList *toolList

	// The fields below are those of a caller's connector, guarded by Server.mu; credential is nil and read-only for the
	// shared one.
	credential *tool.CallerCredential
	// users counts the calls in progress.
	users     int
	idleSince time.Time
	// idleTimer closes the connector at the end of IdleTimeout; nil while users > 0.
	idleTimer *time.Timer
}

// newConnector returns a connector without a connection. Failed attempts are repeated after 1 s to 1 min.
func (s *Server) newConnector(headers map[string]string) *connector {
	l := &connector{Server: s, headers: headers, retryBackoff: backoff.NewExponentialBackOff()}
	l.retryBackoff.InitialInterval, l.retryBackoff.MaxInterval = time.Second, time.Minute
	l.retryBackoff.Reset()
	l.ctx, l.stop = context.WithCancel(s.ctx)
	return l
}

// listTools returns the server's tools as seen by this connector. If a list is known, it waits for the server no longer
// than knownToolsTimeout and returns the known list after a failure: a server that is down must not stop every turn.
func (con *connector) listTools(ctx context.Context) ([]tool.Tool, error) {
	limitedCtx := ctx
	if con.knownList() != nil {
		var cancel context.CancelFunc
		limitedCtx, cancel = context.WithTimeout(ctx, knownToolsTimeout)
		defer cancel()
	}
	c, err := con.ensureConnection(limitedCtx)
	if err == nil {
		err = con.refreshList(limitedCtx, c)
	}
	// An attempt to connect that failed may have listed the tools: a bound can end its session after that.
	if known := con.knownList(); known != nil {
		return known.tools, nil
	}
	return nil, err
}

// knownList returns the last list of this connector, nil if there is none.
func (con *connector) knownList() *toolList {
	con.mu.Lock()
	defer con.mu.Unlock()
	return con.currentList
}

// errTooManyCallers reports that maxCallerConnectors callers have calls in progress.
var errTooManyCallers = errors.New("too many of its callers are connected at once; try again later")

// withCallerConnector calls f with the connector of the session's caller. If the server refuses the
// credential (HTTP 401), the credential is deleted. It returns a [*tool.CredentialError] if the caller must supply one.
func (s *Server) withCallerConnector(ctx context.Context, session agentsvc.SessionKey, f func(l *connector, g *tool.CallerCredential) error) error {
	g, err := s.options.Credential.LoadCredential(ctx, session)
	if err != nil {
		return err
	}
	l, err := s.acquireConnector(g)
	if err != nil {
		return err
	}
	err = f(l, g)
	refused := errors.Is(err, errUnauthorized)
	s.releaseConnector(l, refused)
	// The next call asks the caller for another credential.
	if refused {
		return g.DropRefused(ctx)
	}
	return err
}

// acquireConnector returns the caller's connector for credential g and counts its use, until releaseConnector. A
// connector with an earlier credential of the same caller is removed.
func (s *Server) acquireConnector(g *tool.CallerCredential) (*connector, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.callerConnectors[g.Owner]
	// The caller supplied another credential since: sessions of the old one are not used any more.
	if l != nil && l.credential.Value != g.Value {
		s.removeConnector(l)
		l = nil
	}
	if l == nil {
		if len(s.callerConnectors) >= maxCallerConnectors && !s.evictIdleConnector() {
			return nil, errTooManyCallers
		}
		headers := map[string]string{}
		maps.Copy(headers, s.options.Headers)
		// The caller's credential replaces a configured header with the same name.
		maps.DeleteFunc(headers, func(name, _ string) bool {
			return http.CanonicalHeaderKey(name) == http.CanonicalHeaderKey(s.options.Credential.Header)
		})
		headers[s.options.Credential.Header] = g.Value
		l = s.newConnector(headers)
		l.credential = g
		s.callerConnectors[g.Owner] = l
	}
	l.users++
	if l.idleTimer != nil {
		l.idleTimer.Stop()
		l.idleTimer = nil
	}
	return l, nil
}

// releaseConnector ends a use of l. Without further uses, the connector is closed after IdleTimeout; after a refusal at
// once.
func (s *Server) releaseConnector(l *connector, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	switch {
	case refused:
		s.removeConnector(l)
	case l.users > 0:
	// It was replaced while in use: the last user closes it.
	case s.callerConnectors[l.credential.Owner] != l:
		l.stop()
	default:
		l.idleSince = time.Now()
		l.idleTimer = time.AfterFunc(s.options.IdleTimeout, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if l.users == 0 && s.callerConnectors[l.credential.Owner] == l {
				s.removeConnector(l)
			}
		})
	}
}

// removeConnector removes a connector from the map and closes it, unless it is in use: then releaseConnector closes it.
// The caller holds s.mu.
func (s *Server) removeConnector(l *connector) {
	if s.callerConnectors[l.credential.Owner] == l {
		delete(s.callerConnectors, l.credential.Owner)
	}
	if l.idleTimer != nil {
		l.idleTimer.Stop()
	}
	if l.users == 0 {
		l.stop()
	}
}

// evictIdleConnector closes the connector that has been idle the longest, and reports whether there was one. The caller
// holds s.mu.
func (s *Server) evictIdleConnector() bool {
	var oldest *connector
	for _, l := range s.callerConnectors {
		if l.users == 0 && (oldest == nil || l.idleSince.Before(oldest.idleSince)) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	s.removeConnector(oldest)
	return true
}
