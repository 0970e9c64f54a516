package mcp

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"stoa/agentsvc/tool"
)

// connector is a way to the server: the one that all share, or a caller's own. It has one connection at a time, which it makes
// anew when it is lost.
type connector struct {
	*Server
	headers map[string]string
	ctx     context.Context // ends with the line
	stop    context.CancelFunc

	mu           sync.Mutex
	conn         *connection   // nil = none
	dialDone     chan struct{} // closed when the attempt ends; nil = none is made
	dialErr      error         // of the last attempt
	nextDial     time.Time     // when the next attempt may be made
	retryBackoff *backoff.ExponentialBackOff

	listMu      sync.Mutex // held while a list is taken in
	currentList *toolList  // guarded by mu, nil = never listed

	// Of a caller's own, guarded by the server's mu.
	credential *tool.CallerCredential
	users      int // who uses it
	idleSince  time.Time
	idleTimer  *time.Timer // closes it when nobody does; nil while somebody does
}

func (s *Server) newConnector(headers map[string]string) *connector {
	l := &connector{Server: s, headers: headers, retryBackoff: backoff.NewExponentialBackOff()}
	l.retryBackoff.InitialInterval, l.retryBackoff.MaxInterval = time.Second, time.Minute
	l.retryBackoff.Reset()
	l.ctx, l.stop = context.WithCancel(s.ctx)
	return l
}

// listTools returns the server's tools as this line shows them.
func (l *connector) listTools(ctx context.Context) ([]tool.Tool, error) {
	l.mu.Lock()
	known := l.currentList
	l.mu.Unlock()
	limitedCtx := ctx
	if known != nil {
		var cancel context.CancelFunc
		limitedCtx, cancel = context.WithTimeout(ctx, knownToolsTimeout)
		defer cancel()
	}
	c, err := l.ensureConnection(limitedCtx)
	if err == nil {
		known, err = l.refreshList(limitedCtx, c)
	}
	if known != nil {
		return known.tools, nil
	}
	return nil, err
}

var errTooManyCallers = errors.New("too many of its callers are at work at once; try again later")

// withCallerConnector has f use the line of the caller whose turn ctx belongs to. Where the server does not let that caller in, the
// credential is forgotten. It returns a [*tool.CredentialError] if another one is needed.
func (s *Server) withCallerConnector(ctx context.Context, f func(l *connector, g *tool.CallerCredential) error) error {
	g, err := s.options.Credential.LoadCredential(ctx)
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
	if refused {
		return g.DropRefused(ctx)
	}
	return err
}

// acquireConnector returns the line of the caller with grant g, which leave must be told of. A line for another credential of the
// caller is closed.
func (s *Server) acquireConnector(g *tool.CallerCredential) (*connector, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.callerConnectors[g.Owner]
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

// releaseConnector says that a user of l is done. The line is closed after a while without any, or where it is refused at once.
func (s *Server) releaseConnector(l *connector, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users--
	switch {
	case refused:
		s.removeConnector(l)
	case l.users > 0:
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

// removeConnector takes a line off the list and closes it, or leaves that to the last of those who still use it.
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

// evictIdleConnector closes the line that has not been used for the longest time. It reports whether there was one.
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
