package authz

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/tenancy"
)

// customRoles are two roles: "desk" may call one agent and read every task, drafts may call two agents.
var customRoles = []tenancy.Role{
	{Name: "desk", Scopes: []string{"agents:call:helper", "tasks:read"}},
	{Name: "drafts", Scopes: []string{"agents:call:writer", "agents:call:helper", "agents:read"}},
}

func TestCustomRoles(t *testing.T) {
	t.Parallel()
	po, err := NewPolicy("a", customRoles...)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		roles string
		claim string
		scope Scope
		agent string
		want  bool
	}{
		{"desk", "", AgentsCall, "helper", true},
		{"desk", "", AgentsCall, "writer", false},
		{"desk", "", AgentsCall, "other", false},
		{"desk", "", AgentsCall, "Helper", false},
		{"desk", "", AgentsCall, "", false},
		{"desk", "", AgentsCall, "*", false},
		{"desk", "", AgentsCall, "?", false},
		{"desk", "", TasksRead, "", true},
		{"desk", "", TasksRead, "anything", true},
		{"desk", "", AgentsRead, "", false},
		{"desk", "", TasksApprove, "", false},
		{"desk drafts", "", AgentsCall, "writer", true},
		{"desk drafts", "", AgentsCall, "", false},
		{"desk caller", "", AgentsCall, "other", true},
		{"desk", "agents:call", AgentsCall, "helper", true},
		{"desk", "agents:call", AgentsCall, "writer", false},
		{"desk", "agents:call:helper", AgentsCall, "helper", true},
		{"desk", "agents:call:writer", AgentsCall, "writer", false},
		{"drafts", "agents:call:writer", AgentsCall, "helper", false},
		{"caller", "", AgentsCall, "helper", true},
		{"viewer", "", AgentsCall, "helper", false}, // a role that names an agent gives other roles nothing
		{"approver", "", AgentsCall, "helper", false},
	} {
		t.Run(fmt.Sprintf("%s %q %s %s", tt.roles, tt.claim, tt.scope, tt.agent), func(t *testing.T) {
			t.Parallel()
			p := Principal{App: "a", Roles: strings.Fields(tt.roles), Scopes: parseNarrowingScopes(tt.claim)}
			for range 2 { // decided, then from the cache
				if err := po.Authorize(p, tt.scope, tt.agent); (err == nil) != tt.want {
					t.Fatalf("got %v, want allowed = %v", err, tt.want)
				}
			}
			x, err := po.ExplainAuthorization(p, tt.scope, tt.agent)
			if err != nil || x.Allowed != tt.want || x.Reason == "" || tt.want && x.Rule == nil {
				t.Errorf("explained as %+v, %v, want allowed = %v", x, err, tt.want)
			}
		})
	}
}

func TestCustomRolesVisibility(t *testing.T) {
	t.Parallel()
	po, err := NewPolicy("a", customRoles...)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		roles, claim string
		wide         Scope
		agent        string
		want         Visibility
		denied       bool
	}{
		{"desk", "", TasksRead, "", Visibility{All: true}, false},
		{"desk", "", TasksCancel, "", Visibility{Agents: []string{"helper"}}, false},
		{"desk", "", TasksCancel, "helper", Visibility{Agents: []string{"helper"}}, false},
		{"desk", "", TasksCancel, "writer", Visibility{}, true},
		{"desk drafts", "", TasksCancel, "", Visibility{Agents: []string{"helper", "writer"}}, false},
		{"drafts", "agents:call:writer", TasksRead, "", Visibility{Agents: []string{"writer"}}, false},
		{"drafts", "agents:call:other", TasksRead, "", Visibility{}, true},
		{"drafts", "tasks:read", TasksRead, "", Visibility{}, true},
		{"drafts caller", "", TasksRead, "other", Visibility{}, false},
		{"gone", "", TasksRead, "", Visibility{}, true},
	} {
		t.Run(fmt.Sprintf("%s %q %s %s", tt.roles, tt.claim, tt.wide, tt.agent), func(t *testing.T) {
			t.Parallel()
			got, err := po.AuthorizeTasks(Principal{App: "a", Roles: strings.Fields(tt.roles), Scopes: parseNarrowingScopes(tt.claim)}, tt.wide, tt.agent)
			if errors.Is(err, agentsvc.CodeDenied) != tt.denied || (err != nil && !tt.denied) {
				t.Fatalf("got %v, want denied = %v", err, tt.denied)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPolicyOfInvalidRoles checks that a stored role which is not valid is ignored.
func TestPolicyOfInvalidRoles(t *testing.T) {
	t.Parallel()
	po, err := NewPolicy("a",
		tenancy.Role{Name: "viewer", Scopes: []string{"tasks:approve"}},
		tenancy.Role{Name: "platform_operator", Scopes: []string{"tasks:read"}},
		tenancy.Role{Name: "x", Scopes: []string{"agents:call:*"}},
		tenancy.Role{Name: "y", Scopes: []string{"*"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"viewer", "platform_operator", "x", "y"} {
		for scope := range rolesByScope {
			err := po.Authorize(Principal{App: "a", Roles: []string{role}}, scope, "helper")
			if got, want := err == nil, slices.Contains(rolesByScope[scope], role); got != want {
				t.Errorf("%s %s: allowed = %v, want %v", role, scope, got, want)
			}
		}
	}
}

// TestDecisionsOfManyAgentsStayFew checks that names of agents which no rule contains share one cached decision.
func TestDecisionsOfManyAgentsStayFew(t *testing.T) {
	t.Parallel()
	po, err := NewPolicy("a", customRoles...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		_ = po.Authorize(Principal{App: "a", Roles: []string{"desk", "viewer"}}, AgentsCall, fmt.Sprintf("agent-%d", i))
	}
	if n := len(*po.cachedResults.Load()); n != 2 {
		t.Errorf("%d decisions are remembered, want 2", n)
	}
}

func TestPolicyCacheFollowsRecord(t *testing.T) {
	t.Parallel()
	g := NewPolicyCache("a")
	record := &tenancy.App{ID: "a", RoleSet: tenancy.RoleSet{RolesVersion: 1, Roles: customRoles}}
	p := Principal{App: "a", Roles: []string{"desk"}}
	isAllowed := func() bool {
		po, err := g.PolicyFor(record)
		if err != nil {
			t.Fatal(err)
		}
		return po.Authorize(p, TasksRead, "") == nil
	}
	first, _ := g.PolicyFor(record)
	if again, _ := g.PolicyFor(record); first != again {
		t.Error("the same roles made another policy")
	}
	if !isAllowed() {
		t.Fatal("the role is not in force")
	}
	record = &tenancy.App{ID: "a", RoleSet: tenancy.RoleSet{RolesVersion: 2}}
	if isAllowed() {
		t.Error("the role is in force although it is gone")
	}
	record = &tenancy.App{ID: "a", RoleSet: tenancy.RoleSet{RolesVersion: 3, Roles: customRoles}}
	if !isAllowed() {
		t.Error("the role is not in force although it is there again")
	}
}

func TestCheckRole(t *testing.T) {
	t.Parallel()
	many := make([]string, maxScopesPerRole+1)
	for i := range many {
		many[i] = fmt.Sprintf("agents:call:a%d", i)
	}
	for name, tt := range map[string]struct {
		role tenancy.Role
		want string
	}{
		"no name":       {tenancy.Role{Scopes: []string{"tasks:read"}}, "name"},
		"digit first":   {tenancy.Role{Name: "1st", Scopes: []string{"tasks:read"}}, "name"},
		"long name":     {tenancy.Role{Name: strings.Repeat("a", 64), Scopes: []string{"tasks:read"}}, "name"},
		"no scope":      {tenancy.Role{Name: "x"}, "scopes"},
		"unknown scope": {tenancy.Role{Name: "x", Scopes: []string{"tasks:read", "root"}}, "scopes"},
		"two in one":    {tenancy.Role{Name: "x", Scopes: []string{"tasks:read tasks:cancel"}}, "scopes"},
		"no agent":      {tenancy.Role{Name: "x", Scopes: []string{"agents:call:"}}, "scopes"},
		"many scopes":   {tenancy.Role{Name: "x", Scopes: many}, "scopes"},
		"description":   {tenancy.Role{Name: "x", Scopes: []string{"tasks:read"}, Description: "a\nb"}, "description"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := CheckRole(tt.role)
			var invalid *agentsvc.Error
			if !errors.As(err, &invalid) || invalid.Field != tt.want {
				t.Errorf("got %v, want a complaint about %s", err, tt.want)
			}
		})
	}
	got, err := CheckRole(tenancy.Role{Name: "x", Scopes: []string{"tasks:read", "agents:call:a", "tasks:read"}})
	if diff := cmp.Diff(tenancy.Role{Name: "x", Scopes: []string{"tasks:read", "agents:call:a"}}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}
