package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"stoa/agentsvc"
	"stoa/agentsvc/store"
	"stoa/agentsvc/store/vault"
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
	"stoa/tenancy/keyring"
)

// credentialFixture is the store with the callers' credentials.
type credentialFixture struct {
	database *db.DB
	vault    *vault.Vault
	spec     agentsvc.Credential
}

func newCredentialFixture(t *testing.T, server string) *credentialFixture {
	t.Helper()
	keys, err := keyring.New(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	d := dbtest.NewSQLite(t)
	return &credentialFixture{d, vault.New(d, "acme", keys), agentsvc.Credential{Tool: "shop", Header: "X-Key", Server: server}}
}

func (f *credentialFixture) newProvider() *tool.CredentialProvider {
	return &tool.CredentialProvider{Credential: f.spec, Vault: f.vault, Logger: slog.New(slog.DiscardHandler)}
}

func newOwner(name string) agentsvc.Owner { return agentsvc.Owner{Issuer: "test", Subject: name} }

// sessionOf returns a session of a user.
func sessionOf(name string) agentsvc.SessionKey { return agentsvc.SessionKey{Owner: newOwner(name)} }

// supplyCredential supplies a value as a user, for a task that waits for it.
func (f *credentialFixture) supplyCredential(t *testing.T, name, value string) {
	t.Helper()
	st := store.New(f.database, "acme")
	id := agentsvc.TaskID(agentsvc.NewID())
	at := func(seq int64, state agentsvc.State) agentsvc.Event {
		return agentsvc.Event{Task: id, Seq: seq, At: time.Now(), Status: &agentsvc.Status{State: state}}
	}
	run := store.Run{Task: id, Turn: 1, Agent: "a", Context: "c", Owner: newOwner(name), FirstSeq: 1, Lease: store.Lease{Epoch: 1, Seq: 1}}
	if err := st.Tasks.Create(t.Context(), store.NewTurn{Run: run, Events: []agentsvc.Event{at(1, agentsvc.AuthRequired)}}); err != nil {
		t.Fatal(err)
	}
	seen, err := st.Tasks.Load(t.Context(), nil, id, store.TaskParts{})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := f.vault.SealCredential(newOwner(name), f.spec, value)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Approvals.RecordDecisions(t.Context(), seen, store.DecisionRecord{Events: []agentsvc.Event{at(2, agentsvc.Cancelled)}, Credentials: []vault.SealedCredential{sealed}}); err != nil {
		t.Fatal(err)
	}
}

// memberServer is a server that identifies its callers by a key and records who began which session.
type memberServer struct {
	mu      sync.Mutex
	members map[string]string // by key
	// membersOnly: the server lists its tools to members only.
	membersOnly bool
	// sessions holds the member who began each session.
	sessions       map[string]string
	sharedSessions []string
	// unknownKeys counts the requests with a key of no member.
	unknownKeys int
}

func newMemberServer(t *testing.T, closed bool, old bool) (*memberServer, string) {
	t.Helper()
	c := &memberServer{members: map[string]string{"key of ana": "ana", "key of bob": "bob"}, membersOnly: closed, sessions: map[string]string{}}
	opened := 0
	open := func(r *http.Request) *sdk.Server { // a session belongs to the caller who opened it
		key := r.Header.Get("X-Key")
		c.mu.Lock()
		opened++
		n := opened
		c.mu.Unlock()
		s := sdk.NewServer(&sdk.Implementation{Name: "club", Version: "1"}, nil)
		addTool(s, "who", "Tells who calls.", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return textResult(fmt.Sprintf("%s with %s at %d", c.memberName(key), key, n)), nil
		})
		t.Cleanup(func() {
			for session := range s.Sessions() {
				_ = session.Close()
			}
		})
		if strings.HasPrefix(key, "key of") {
			addTool(s, "leak", "For "+key, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return textResult(""), nil })
		}
		return s
	}
	var next http.Handler = sdk.NewStreamableHTTPHandler(open, nil)
	if old {
		next = sdk.NewSSEHandler(open, nil)
	}
	srv := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.isUnauthorized(r) {
			http.Error(w, "no "+r.Header.Get("X-Key"), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
		c.recordSession(w.Header().Get("Mcp-Session-Id"), r)
	}))
	return c, srv.URL
}

func (s *memberServer) memberName(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[key]
}

func (s *memberServer) isUnauthorized(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("X-Key")
	if key == "" {
		return s.membersOnly
	}
	if s.members[key] == "" {
		s.unknownKeys++
		return true
	}
	return false
}

// recordSession records who used a session, and whether another caller had begun it.
func (s *memberServer) recordSession(session string, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("X-Key")
	for _, id := range []string{session, r.Header.Get("Mcp-Session-Id")} {
		if id == "" {
			continue
		}
		if first, ok := s.sessions[id]; ok && first != key {
			s.sharedSessions = append(s.sharedSessions, id)
		}
		s.sessions[id] = key
	}
}

func (s *memberServer) removeMember(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, key)
}

// callWho calls the tool as a user.
func callWho(t *testing.T, s *mcp.Server, name string) (string, error) {
	t.Helper()
	list, err := s.ListTools(t.Context(), sessionOf(name))
	if err != nil {
		return "", err
	}
	if len(list) != 1 || list[0].Spec().Name != "who" {
		t.Errorf("%s sees %d tools", name, len(list))
	}
	return list[0].Call(t.Context(), tool.Call{RunScope: agentsvc.RunScope{Session: sessionOf(name)}, Arguments: json.RawMessage(`{}`)})
}

func isCredentialError(err error) bool {
	var credentialErr *tool.CredentialError
	return errors.As(err, &credentialErr)
}

// TestCallers checks that each caller has a session of its own with its own credential, which is shown to no other.
func TestCallers(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct{ closed, old bool }{
		"lists for everybody": {}, "lists for members": {closed: true}, "SSE": {old: true}, "SSE, for members": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, url := newMemberServer(t, o.closed, o.old)
			p := newCredentialFixture(t, url)
			var out logBuffer
			s := newSource(t, mcp.Options{URL: url, Credential: p.newProvider(), Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			if _, err := callWho(t, s, "ana"); !isCredentialError(err) {
				t.Fatalf("without a credential: %v", err)
			}
			p.supplyCredential(t, "ana", "key of ana")
			p.supplyCredential(t, "bob", "key of bob")
			var wg sync.WaitGroup
			for range 5 {
				for _, name := range []string{"ana", "bob"} {
					wg.Go(func() {
						if got, err := callWho(t, s, name); err != nil || !strings.HasPrefix(got, name+" with [credential] at ") {
							t.Errorf("%s got %q, %v", name, got, err)
						}
					})
				}
			}
			wg.Wait()
			if len(c.sharedSessions) > 0 {
				t.Errorf("sessions %v had callers with different credentials", c.sharedSessions)
			}
			if _, err := callWho(t, s, "eve"); !isCredentialError(err) {
				t.Errorf("eve: %v", err)
			}
			if strings.Contains(out.String(), "key of") {
				t.Errorf("the log knows a credential:\n%s", &out)
			}
		})
	}
}

// TestCallerRefused checks that a credential the server no longer accepts is deleted, and that the next one opens a new
// session.
func TestCallerRefused(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			t.Parallel()
			c, url := newMemberServer(t, closed, false)
			p := newCredentialFixture(t, url)
			s := newSource(t, mcp.Options{URL: url, Credential: p.newProvider()})
			p.supplyCredential(t, "ana", "key of nobody")
			if _, err := callWho(t, s, "ana"); !isCredentialError(err) {
				t.Fatalf("a wrong one: %v", err)
			}
			p.supplyCredential(t, "ana", "key of ana")
			if _, err := callWho(t, s, "ana"); err != nil {
				t.Fatal(err)
			}
			c.removeMember("key of ana")
			if _, err := callWho(t, s, "ana"); !isCredentialError(err) {
				t.Errorf("expelled: %v", err)
			}
			if stored, err := p.vault.ListCredentials(t.Context(), newOwner("ana")); err != nil || len(stored) != 0 {
				t.Errorf("kept %+v, %v", stored, err)
			}
			before := c.unknownKeys
			if _, err := callWho(t, s, "ana"); !isCredentialError(err) || c.unknownKeys != before {
				t.Errorf("the forgotten one went out again: %v", err)
			}
			p.supplyCredential(t, "ana", "key of bob")
			if got, err := callWho(t, s, "ana"); err != nil || !strings.HasPrefix(got, "bob ") {
				t.Errorf("with another key: %q, %v", got, err)
			}
		})
	}
}

// TestCallerIdle checks that a caller's session ends when it is not used for some time.
func TestCallerIdle(t *testing.T) {
	t.Parallel()
	c, url := newMemberServer(t, false, false)
	p := newCredentialFixture(t, url)
	s := newSource(t, mcp.Options{URL: url, Credential: p.newProvider(), IdleTimeout: 50 * time.Millisecond})
	p.supplyCredential(t, "ana", "key of ana")
	first, err := callWho(t, s, "ana")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	var later string
	dbtest.WaitUntil(t, "a new session", func() bool {
		time.Sleep(100 * time.Millisecond)
		if later, err = callWho(t, s, "ana"); err != nil {
			t.Fatal(err)
		}
		return later != first
	})
	if len(c.sharedSessions) > 0 {
		t.Errorf("mixed %v", c.sharedSessions)
	}
}
