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

// line is a way to the server: the one that all share, or a caller's own. It has one connection at a time, which it makes
// anew when it is lost.
type line struct {
	*Server
	headers map[string]string
	ctx     context.Context // ends with the line
	end     context.CancelFunc

	mu      sync.Mutex
	conn    *connection   // nil = none
	dialing chan struct{} // closed when the attempt ends; nil = none is made
	err     error         // of the last attempt
	retry   time.Time     // when the next attempt may be made
	pause   *backoff.ExponentialBackOff

	listing sync.Mutex // held while a list is taken in
	known   *list      // guarded by mu, nil = never listed

	// Of a caller's own, guarded by the server's mu.
	grant *tool.Grant
	busy  int // who uses it
	since time.Time
	idle  *time.Timer // closes it when nobody does; nil while somebody does
}

func (s *Server) newLine(headers map[string]string) *line {
	l := &line{Server: s, headers: headers, pause: backoff.NewExponentialBackOff()}
	l.pause.InitialInterval, l.pause.MaxInterval = time.Second, time.Minute
	l.pause.Reset()
	l.ctx, l.end = context.WithCancel(s.ctx)
	return l
}

// tools returns the server's tools as this line shows them.
func (l *line) tools(ctx context.Context) ([]tool.Tool, error) {
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	within := ctx
	if known != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	c, err := l.connection(within)
	if err == nil {
		known, err = l.refresh(within, c)
	}
	if known != nil {
		return known.tools, nil
	}
	return nil, err
}

var errTooMany = errors.New("too many of its callers are at work at once; try again later")

// asCaller has f use the line of the caller whose turn ctx belongs to. Where the server does not let that caller in, the
// credential is forgotten. It returns a [*tool.CredentialError] if another one is needed.
func (s *Server) asCaller(ctx context.Context, f func(l *line, g *tool.Grant) error) error {
	g, err := s.o.Credential.Grant(ctx)
	if err != nil {
		return err
	}
	l, err := s.enter(g)
	if err != nil {
		return err
	}
	err = f(l, g)
	refused := errors.Is(err, errUnauthorized)
	s.leave(l, refused)
	if refused {
		return g.Refused(ctx)
	}
	return err
}

// enter returns the line of the caller with grant g, which leave must be told of. A line for another credential of the
// caller is closed.
func (s *Server) enter(g *tool.Grant) (*line, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.own[g.Owner]
	if l != nil && l.grant.Value != g.Value {
		s.forget(l)
		l = nil
	}
	if l == nil {
		if len(s.own) >= maxOwn && !s.spare() {
			return nil, errTooMany
		}
		headers := map[string]string{}
		maps.Copy(headers, s.o.Headers)
		maps.DeleteFunc(headers, func(name, _ string) bool {
			return http.CanonicalHeaderKey(name) == http.CanonicalHeaderKey(s.o.Credential.Header)
		})
		headers[s.o.Credential.Header] = g.Value
		l = s.newLine(headers)
		l.grant = g
		s.own[g.Owner] = l
	}
	l.busy++
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
	return l, nil
}

// leave says that a user of l is done. The line is closed after a while without any, or where it is refused at once.
func (s *Server) leave(l *line, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.busy--
	switch {
	case refused:
		s.forget(l)
	case l.busy > 0:
	case s.own[l.grant.Owner] != l:
		l.end()
	default:
		l.since = time.Now()
		l.idle = time.AfterFunc(s.o.Idle, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if l.busy == 0 && s.own[l.grant.Owner] == l {
				s.forget(l)
			}
		})
	}
}

// forget takes a line off the list and closes it, or leaves that to the last of those who still use it.
func (s *Server) forget(l *line) {
	if s.own[l.grant.Owner] == l {
		delete(s.own, l.grant.Owner)
	}
	if l.idle != nil {
		l.idle.Stop()
	}
	if l.busy == 0 {
		l.end()
	}
}

// spare closes the line that has not been used for the longest time. It reports whether there was one.
func (s *Server) spare() bool {
	var oldest *line
	for _, l := range s.own {
		if l.busy == 0 && (oldest == nil || l.since.Before(oldest.since)) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	s.forget(oldest)
	return true
}
