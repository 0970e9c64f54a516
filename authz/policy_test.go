package authz

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/tenancy"
	"stoa/tenancy/db"
)

func newPolicy(t testing.TB, app db.ID) *Policy {
	t.Helper()
	p, err := NewPolicy(app)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRoles checks every cell of the table of roles and scopes.
func TestRoles(t *testing.T) {
	t.Parallel()
	table := []struct {
		scope                                                  Scope
		admin, operator, developer, approver, caller, viewer   bool
		platformOperator, unknown, empty, wildcard, otherWords bool
	}{
		{scope: "agents:read", admin: true, operator: true, developer: true, approver: true, caller: true, viewer: true},
		{scope: "agents:call", admin: true, operator: true, developer: true, caller: true},
		{scope: "tasks:read", admin: true, operator: true, developer: true, approver: true, viewer: true},
		{scope: "tasks:cancel", admin: true, operator: true},
		{scope: "tasks:approve", admin: true, operator: true, approver: true},
		{scope: "config:read", admin: true, operator: true, developer: true},
		{scope: "config:write", admin: true, operator: true, developer: true},
		{scope: "usage:read", admin: true, operator: true, developer: true, viewer: true},
		{scope: "documents:read", admin: true, operator: true, developer: true, caller: true, viewer: true},
		{scope: "documents:write", admin: true, operator: true, developer: true},
		{scope: "platform:admin"},
		{scope: "agents:*"},
		{scope: ""},
	}
	policy := newPolicy(t, "a")
	for _, row := range table {
		for role, want := range map[string]bool{
			"admin": row.admin, "operator": row.operator, "developer": row.developer, "approver": row.approver,
			"caller": row.caller, "viewer": row.viewer, "platform_operator": row.platformOperator,
			"root": row.unknown, "": row.empty, "*": row.wildcard, "Admin": row.otherWords,
		} {
			t.Run(fmt.Sprintf("%s %s", role, row.scope), func(t *testing.T) {
				t.Parallel()
				for range 2 { // decided, then from the cache
					err := policy.Authorize(Principal{App: "a", Roles: []string{role}}, row.scope, "")
					if got := err == nil; got != want {
						t.Fatalf("allowed = %v (%v), want %v", got, err, want)
					}
					if err != nil && !errors.Is(err, agentsvc.CodeDenied) {
						t.Fatalf("got %v, want agentsvc.CodeDenied", err)
					}
				}
			})
		}
	}
	var covered []Scope
	for _, row := range table {
		covered = append(covered, row.scope)
	}
	for scope := range rolesByScope {
		if !slices.Contains(covered, scope) {
			t.Errorf("the scope %s is not in the table", scope)
		}
	}
}

func TestScopesNarrow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		claim string
		role  string
		scope Scope
		agent string
		want  bool
	}{
		{"", "caller", AgentsCall, "helper", true},
		{"openid profile email", "caller", AgentsCall, "helper", true},
		{"agents:call", "caller", AgentsCall, "helper", true},
		{"openid agents:call", "caller", AgentsCall, "helper", true},
		{"agents:call", "admin", TasksRead, "", false},
		{"agents:call", "admin", AgentsRead, "", false},
		{"tasks:read", "caller", TasksRead, "", false}, // a scope gives nothing that the role does not have
		{"tasks:read", "admin", AgentsCall, "helper", false},
		{"agents:call:helper", "caller", AgentsCall, "helper", true},
		{"agents:call:helper", "caller", AgentsCall, "Helper", false},
		{"agents:call:helper", "caller", AgentsCall, "helper2", false},
		{"agents:call:helper", "caller", AgentsCall, "help", false},
		{"agents:call:helper", "caller", AgentsCall, "", false},
		{"agents:call:helper", "viewer", AgentsCall, "helper", false},
		{"agents:call:a agents:call:b", "caller", AgentsCall, "b", true},
		{"agents:call:*", "caller", AgentsCall, "helper", false},
		{"agents:call:.*", "caller", AgentsCall, "helper", false},
		{"agents:call:h_lper", "caller", AgentsCall, "helper", false},
		{"agents:call:", "caller", AgentsCall, "helper", false},
		{"agents:call:", "caller", AgentsCall, "", false},
		{"agents:call:helper", "admin", TasksRead, "helper", false},
		{"tasks:read:helper", "viewer", TasksRead, "helper", true}, // not a scope, so it does not narrow
		{"AGENTS:CALL", "viewer", TasksRead, "", true},             // not a scope either
	} {
		t.Run(fmt.Sprintf("%q %s %s %s", tt.claim, tt.role, tt.scope, tt.agent), func(t *testing.T) {
			t.Parallel()
			p := Principal{App: "a", Roles: []string{tt.role}, Scopes: parseNarrowingScopes(tt.claim)}
			if err := newPolicy(t, "a").Authorize(p, tt.scope, tt.agent); (err == nil) != tt.want {
				t.Errorf("got %v, want allowed = %v", err, tt.want)
			}
		})
	}
}

// TestListScopes checks which scopes are listed for a principal.
func TestListScopes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		claim, role, want string
	}{
		{"", "approver", "agents:read tasks:approve tasks:read"},
		{"", "caller", "agents:call agents:read documents:read"},
		{"tasks:approve config:read", "approver", "tasks:approve"},
		{"agents:call:b agents:call:a tasks:approve", "caller", "agents:call:a agents:call:b"},
		{"agents:call:a", "viewer", ""},
		{"", "nobody", ""},
	} {
		t.Run(fmt.Sprintf("%q %s", tt.claim, tt.role), func(t *testing.T) {
			t.Parallel()
			policy, p := newPolicy(t, "a"), Principal{App: "a", Roles: []string{tt.role}, Scopes: parseNarrowingScopes(tt.claim)}
			scopes, err := policy.ListScopes(p)
			if err != nil {
				t.Fatal(err)
			}
			var words []string
			for _, s := range scopes {
				words = append(words, string(s))
			}
			if got := strings.Join(words, " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, p := range []Principal{{App: "b", Roles: []string{"admin"}}, {Platform: true}} {
		if scopes, err := newPolicy(t, "a").ListScopes(p); !errors.Is(err, agentsvc.CodeDenied) {
			t.Errorf("%+v: got %v, %v, want a refusal", p, scopes, err)
		}
	}
}

func TestTaskVisibility(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		claim, role string
		wide        Scope
		agent       string
		want        Visibility
		denied      bool
	}{
		{"", "admin", TasksRead, "", Visibility{All: true}, false},
		{"", "viewer", TasksRead, "x", Visibility{All: true}, false},
		{"", "viewer", TasksCancel, "", Visibility{}, true},
		{"", "approver", TasksRead, "", Visibility{All: true}, false},
		{"", "approver", TasksCancel, "", Visibility{}, true},
		{"", "developer", TasksRead, "", Visibility{All: true}, false},
		{"", "developer", TasksCancel, "", Visibility{}, false},
		{"", "caller", TasksRead, "", Visibility{}, false},
		{"", "caller", TasksCancel, "x", Visibility{}, false},
		{"agents:call", "admin", TasksRead, "", Visibility{}, false},
		{"tasks:read", "admin", TasksRead, "", Visibility{All: true}, false},
		{"tasks:read", "admin", TasksCancel, "", Visibility{}, true},
		{"agents:call:x agents:call:y", "caller", TasksRead, "", Visibility{Agents: []string{"x", "y"}}, false},
		{"agents:call:x", "caller", TasksRead, "x", Visibility{Agents: []string{"x"}}, false},
		{"agents:call:x", "caller", TasksRead, "z", Visibility{}, true},
		{"agents:call:x", "viewer", TasksRead, "", Visibility{}, true},
		{"agents:call:", "caller", TasksRead, "", Visibility{}, true},
		{"config:read", "admin", TasksRead, "", Visibility{}, true},
		{"", "nobody", TasksRead, "", Visibility{}, true},
	} {
		t.Run(fmt.Sprintf("%q %s %s %s", tt.claim, tt.role, tt.wide, tt.agent), func(t *testing.T) {
			t.Parallel()
			p := Principal{App: "a", Roles: []string{tt.role}, Scopes: parseNarrowingScopes(tt.claim)}
			got, err := newPolicy(t, "a").AuthorizeTasks(p, tt.wide, tt.agent)
			if errors.Is(err, agentsvc.CodeDenied) != tt.denied || (err != nil && !tt.denied) {
				t.Fatalf("got %v, want denied = %v", err, tt.denied)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeniedSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		p    Principal
		ask  func(*Policy, Principal) error
		want string
	}{
		{"role", Principal{App: "a", Roles: []string{"caller", "uma_authorization"}}, authorizeCall(TasksApprove, ""),
			`permission denied: the scope "tasks:approve" is needed, and your roles (caller; not there in this app: uma_authorization) do not have it`},
		{"agent", Principal{App: "a", Roles: []string{"gone", "Not a role"}}, authorizeCall(AgentsCall, "x"),
			`permission denied: the scope "agents:call:x" is needed, and your roles (not there in this app: gone) do not have it`},
		{"no role", Principal{App: "a"}, authorizeCall(AgentsRead, ""),
			`permission denied: the scope "agents:read" is needed, and your roles (none) do not have it`},
		{"narrowed", Principal{App: "a", Roles: []string{"admin"}, Scopes: []Scope{AgentsRead}}, authorizeCall(UsageRead, ""),
			`permission denied: the scope "usage:read" is needed, and your token is narrowed to others`},
		{"other agent", Principal{App: "a", Roles: []string{"caller"}, Scopes: []Scope{"agents:call:x"}}, authorizeCall(AgentsCall, "y"),
			`permission denied: the scope "agents:call:y" is needed, and your token is narrowed to others`},
		{"tasks", Principal{App: "a", Roles: []string{"viewer"}}, func(po *Policy, p Principal) error {
			_, err := po.AuthorizeTasks(p, TasksCancel, "")
			return err
		}, `permission denied: the scope "tasks:cancel" is needed, or "agents:call" for your own tasks`},
		{"platform", Principal{Platform: true, Roles: []string{"platform_operator", "admin"}}, authorizeCall(AgentsRead, ""),
			`permission denied: a platform credential is for the admin API alone`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := tt.ask(newPolicy(t, "a"), tt.p)
			if !errors.Is(err, agentsvc.CodeDenied) {
				t.Fatalf("got %v, want agentsvc.CodeDenied", err)
			}
			if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func authorizeCall(scope Scope, agent string) func(*Policy, Principal) error {
	return func(po *Policy, p Principal) error { return po.Authorize(p, scope, agent) }
}

// TestIsolation asks the policy of one app about principals of another; all are refused.
func TestIsolation(t *testing.T) {
	t.Parallel()
	alice, bob := newPolicy(t, "alice"), newPolicy(t, "bob")
	everything := BuiltInRoleNames()
	for scope := range rolesByScope {
		p := Principal{App: "alice", Roles: everything}
		if err := alice.Authorize(p, scope, ""); err != nil {
			t.Fatalf("%s at home: %v", scope, err)
		}
		for _, other := range []Principal{
			p,
			{App: "", Roles: everything},
			{App: "BOB", Roles: everything},
			{App: "bob' || '1", Roles: everything},
			{App: "bob", Platform: true, Roles: everything},
		} {
			if err := bob.Authorize(other, scope, "x"); !errors.Is(err, agentsvc.CodeDenied) {
				t.Errorf("%s by %+v: got %v, want agentsvc.CodeDenied", scope, other, err)
			}
			if _, err := bob.AuthorizeTasks(other, scope, ""); !errors.Is(err, agentsvc.CodeDenied) {
				t.Errorf("tasks with %s by %+v: got %v, want agentsvc.CodeDenied", scope, other, err)
			}
		}
	}
	noApp := newPolicy(t, "")
	if err := noApp.Authorize(Principal{Roles: everything}, AgentsRead, ""); !errors.Is(err, agentsvc.CodeDenied) {
		t.Errorf("no app: got %v, want agentsvc.CodeDenied", err)
	}
}

func TestPolicyServesManyAtOnceAndStaysSmall(t *testing.T) {
	t.Parallel()
	policy := newPolicy(t, "a")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for scope := range rolesByScope {
				for _, role := range append(BuiltInRoleNames(), fmt.Sprintf("made-up-%d", i)) {
					err := policy.Authorize(Principal{App: "a", Subject: fmt.Sprint(i), Roles: []string{role}}, scope, "")
					if got, want := err == nil, slices.Contains(rolesByScope[scope], role); got != want {
						t.Errorf("%s %s: allowed = %v, want %v", role, scope, got, want)
					}
				}
			}
		})
	}
	wg.Wait()
	if got, limit := len(*policy.cachedResults.Load()), len(BuiltInRoleNames())*len(rolesByScope); got > limit {
		t.Errorf("%d decisions are remembered, want at most %d", got, limit)
	}
}

// TestPolicyHeap bounds the memory of an app's policy. Most apps have no roles of their own: their rules are shared.
func TestPolicyHeap(t *testing.T) {
	support := tenancy.Role{Name: "support", Scopes: []string{"agents:read", "agents:call:helper", "tasks:read"}}
	for _, tt := range []struct {
		name  string
		roles []tenancy.Role
		most  int64
	}{
		{"built-in roles", nil, 2 << 10},
		{"an own role", []tenancy.Role{support}, 16 << 10},
	} {
		const policies = 500
		var before, after runtime.MemStats
		keep := make([]*Policy, policies)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range keep {
			policy, err := NewPolicy(db.ID(fmt.Sprintf("app-%d", i)), tt.roles...)
			if err != nil {
				t.Fatal(err)
			}
			for _, role := range []string{"caller", "support"} {
				_ = policy.Authorize(Principal{App: policy.app, Roles: []string{role}}, TasksRead, "")
			}
			keep[i] = policy
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / policies
		t.Logf("%s: %d bytes for each policy", tt.name, each)
		if each > tt.most {
			t.Errorf("%s: a policy holds %d bytes, want at most %d", tt.name, each, tt.most)
		}
		runtime.KeepAlive(keep)
	}
}

func BenchmarkAuthorize(b *testing.B) {
	p := Principal{App: "a", Roles: []string{"viewer"}, Scopes: []Scope{AgentsRead, TasksRead}}
	b.Run("remembered", func(b *testing.B) {
		policy := newPolicy(b, "a")
		for b.Loop() {
			if err := policy.Authorize(p, TasksRead, ""); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("cold", func(b *testing.B) {
		policy := newPolicy(b, "a")
		for b.Loop() {
			policy.cachedResults.Store(&map[authorizationQuery]bool{})
			if err := policy.Authorize(p, TasksCancel, ""); err == nil {
				b.Fatal("allowed")
			}
		}
	})
}

func BenchmarkNewPolicy(b *testing.B) {
	for b.Loop() {
		newPolicy(b, "a")
	}
}

func TestScopeWords(t *testing.T) {
	t.Parallel()
	want := "agents:call agents:call:<agent> agents:read config:read config:write documents:read documents:write tasks:approve tasks:cancel tasks:read usage:read"
	if diff := cmp.Diff(want, strings.Join(listScopeNames(), " ")); diff != "" {
		t.Error(diff)
	}
}
