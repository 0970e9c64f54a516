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
	"stoa/agentsvc/tool"
	"stoa/agentsvc/tool/mcp"
	"stoa/tenancy"
	"stoa/tenancy/db"
	"stoa/tenancy/db/dbtest"
)

// purse is where the callers of a test keep what they have.
type purse struct {
	d     *db.DB
	vault *store.Vault
	of    agentsvc.Credential
}

func newPurse(t *testing.T, server string) *purse {
	t.Helper()
	keys, err := tenancy.NewKeyring(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	d := dbtest.SQLite(t)
	return &purse{d, store.NewVault(d, "acme", keys), agentsvc.Credential{Tool: "shop", Header: "X-Key", Server: server}}
}

func (p *purse) credential() *tool.Credential {
	return &tool.Credential{Credential: p.of, Vault: p.vault, Log: slog.New(slog.DiscardHandler)}
}

func user(name string) agentsvc.Owner { return agentsvc.Owner{Issuer: "test", Subject: name} }

// as is the context of a turn of a user.
func as(t *testing.T, name string) context.Context {
	return agentsvc.WithSession(t.Context(), agentsvc.SessionKey{Owner: user(name)})
}

// gives has a user supply a value, on a task that waits for it.
func (p *purse) gives(t *testing.T, name, value string) {
	t.Helper()
	st := store.New(p.d, "acme")
	id := agentsvc.TaskID(agentsvc.NewID())
	at := func(seq int64, state agentsvc.State) agentsvc.Event {
		return agentsvc.Event{Task: id, Seq: seq, At: time.Now(), Status: &agentsvc.Status{State: state}}
	}
	run := store.Run{Task: id, Turn: 1, Agent: "a", Context: "c", Owner: user(name), Epoch: 1, Seq: 1, FirstSeq: 1}
	if err := st.Accept(t.Context(), run, []agentsvc.Event{at(1, agentsvc.AuthRequired)}, nil); err != nil {
		t.Fatal(err)
	}
	seen, err := st.Task(t.Context(), id, store.With{})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := p.vault.Seal(user(name), p.of, value)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Decide(t.Context(), seen, store.Ruling{Events: []agentsvc.Event{at(2, agentsvc.Cancelled)}, Supply: []store.Sealed{sealed}}); err != nil {
		t.Fatal(err)
	}
}

// club is a server that knows its callers by a key, and which sessions they began.
type club struct {
	mu       sync.Mutex
	names    map[string]string // by key
	closed   bool              // it lists its tools for members alone
	sessions map[string]string // who began each
	mixed    []string
	stray    int // requests with a key that were no member's
}

func openClub(t *testing.T, closed bool, old bool) (*club, string) {
	t.Helper()
	c := &club{names: map[string]string{"key of ana": "ana", "key of bob": "bob"}, closed: closed, sessions: map[string]string{}}
	opened := 0
	open := func(r *http.Request) *sdk.Server { // a session is its opener's, whoever uses it
		key := r.Header.Get("X-Key")
		c.mu.Lock()
		opened++
		n := opened
		c.mu.Unlock()
		s := sdk.NewServer(&sdk.Implementation{Name: "club", Version: "1"}, nil)
		add(s, "who", "Tells who calls.", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return says(fmt.Sprintf("%s with %s at %d", c.name(key), key, n)), nil
		})
		t.Cleanup(func() {
			for session := range s.Sessions() {
				_ = session.Close()
			}
		})
		if strings.HasPrefix(key, "key of") {
			add(s, "leak", "For "+key, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return says(""), nil })
		}
		return s
	}
	var next http.Handler = sdk.NewStreamableHTTPHandler(open, nil)
	if old {
		next = sdk.NewSSEHandler(open, nil)
	}
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.refuses(r) {
			http.Error(w, "no "+r.Header.Get("X-Key"), http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
		c.note(w.Header().Get("Mcp-Session-Id"), r)
	}))
	return c, srv.URL
}

func (c *club) name(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.names[key]
}

func (c *club) refuses(r *http.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Header.Get("X-Key")
	if key == "" {
		return c.closed
	}
	if c.names[key] == "" {
		c.stray++
		return true
	}
	return false
}

// note keeps who used a session, and whether somebody else had begun it.
func (c *club) note(session string, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := r.Header.Get("X-Key")
	for _, id := range []string{session, r.Header.Get("Mcp-Session-Id")} {
		if id == "" {
			continue
		}
		if first, ok := c.sessions[id]; ok && first != key {
			c.mixed = append(c.mixed, id)
		}
		c.sessions[id] = key
	}
}

func (c *club) expel(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.names, key)
}

// who calls the tool as a user.
func who(t *testing.T, s *mcp.Server, name string) (string, error) {
	t.Helper()
	list, err := s.Tools(as(t, name))
	if err != nil {
		return "", err
	}
	if len(list) != 1 || list[0].Spec().Name != "who" {
		t.Errorf("%s sees %d tools", name, len(list))
	}
	return list[0].Call(as(t, name), tool.Input{Arguments: json.RawMessage(`{}`)})
}

func wanted(err error) bool {
	var wants *tool.CredentialError
	return errors.As(err, &wants)
}

// TestCallers: each caller has a session of its own, under its own credential, which no other is shown.
func TestCallers(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct{ closed, old bool }{
		"lists for everybody": {}, "lists for members": {closed: true}, "SSE": {old: true}, "SSE, for members": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, url := openClub(t, o.closed, o.old)
			p := newPurse(t, url)
			var out log
			s := source(t, mcp.Options{URL: url, Credential: p.credential(), Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			if _, err := who(t, s, "ana"); !wanted(err) {
				t.Fatalf("without a credential: %v", err)
			}
			p.gives(t, "ana", "key of ana")
			p.gives(t, "bob", "key of bob")
			var wg sync.WaitGroup
			for range 5 {
				for _, name := range []string{"ana", "bob"} {
					wg.Go(func() {
						if got, err := who(t, s, name); err != nil || !strings.HasPrefix(got, name+" with [credential] at ") {
							t.Errorf("%s is told %q, %v", name, got, err)
						}
					})
				}
			}
			wg.Wait()
			if len(c.mixed) > 0 {
				t.Errorf("sessions %v had callers with different credentials", c.mixed)
			}
			if _, err := who(t, s, "eve"); !wanted(err) {
				t.Errorf("eve: %v", err)
			}
			if strings.Contains(out.String(), "key of") {
				t.Errorf("the log knows a credential:\n%s", &out)
			}
		})
	}
}

// TestCallerRefused: a credential that the server no longer accepts is forgotten, and the next one opens a new session.
func TestCallerRefused(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		t.Run(fmt.Sprint("closed ", closed), func(t *testing.T) {
			t.Parallel()
			c, url := openClub(t, closed, false)
			p := newPurse(t, url)
			s := source(t, mcp.Options{URL: url, Credential: p.credential()})
			p.gives(t, "ana", "key of nobody")
			if _, err := who(t, s, "ana"); !wanted(err) {
				t.Fatalf("a wrong one: %v", err)
			}
			p.gives(t, "ana", "key of ana")
			if _, err := who(t, s, "ana"); err != nil {
				t.Fatal(err)
			}
			c.expel("key of ana")
			if _, err := who(t, s, "ana"); !wanted(err) {
				t.Errorf("expelled: %v", err)
			}
			if kept, err := p.vault.List(t.Context(), user("ana")); err != nil || len(kept) != 0 {
				t.Errorf("kept %+v, %v", kept, err)
			}
			before := c.stray
			if _, err := who(t, s, "ana"); !wanted(err) || c.stray != before {
				t.Errorf("the forgotten one went out again: %v", err)
			}
			p.gives(t, "ana", "key of bob")
			if got, err := who(t, s, "ana"); err != nil || !strings.HasPrefix(got, "bob ") {
				t.Errorf("with another key: %q, %v", got, err)
			}
		})
	}
}

// TestCallerIdle: a caller's session ends when it is not used for a while.
func TestCallerIdle(t *testing.T) {
	t.Parallel()
	c, url := openClub(t, false, false)
	p := newPurse(t, url)
	s := source(t, mcp.Options{URL: url, Credential: p.credential(), Idle: 50 * time.Millisecond})
	p.gives(t, "ana", "key of ana")
	first, err := who(t, s, "ana")
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	var later string
	eventually(t, "a new session", func() bool {
		time.Sleep(100 * time.Millisecond)
		if later, err = who(t, s, "ana"); err != nil {
			t.Fatal(err)
		}
		return later != first
	})
	if len(c.mixed) > 0 {
		t.Errorf("mixed %v", c.mixed)
	}
}
