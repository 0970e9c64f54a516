package tenantapi_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc"
	"stoa/agentsvc/memory"
	"stoa/agentsvc/surface/surfacetest"
	"stoa/authz"
)

// TestMemories checks that users read and delete their own memories, and operators those of every user.
func TestMemories(t *testing.T) {
	t.Parallel()
	h := surfacetest.New(t, surfacetest.Options{}, newRoutes)
	h.CreateApp(t, "acme", "llms: {m: {provider: scripted}}\nagents: {one: {llm: m}, two: {llm: m}}")
	id, err := h.Apps.FindAppID(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for _, who := range []struct {
		sub, role, scope string
	}{{"ana", "caller", ""}, {"bob", "caller", ""}, {"bob narrow", "caller", "agents:call:two"}, {"vic", "viewer", ""}, {"dev", "developer", ""}, {"olga", "operator", ""}} {
		tokens[who.sub] = h.MintToken(t, "acme", authz.TokenSpec{Subject: strings.Fields(who.sub)[0], Roles: []string{who.role}, Scope: who.scope})
	}
	issuer := tokenIssuer(t, tokens["ana"])
	for _, m := range []struct{ sub, agent, text string }{{"ana", "one", "my dog is Rex"}, {"ana", "two", "my cat is Tom"}, {"bob", "one", "one of bob"}, {"bob", "two", "two of bob"}} {
		err := memory.New(h.DB, id).AddMemories(t.Context(), memory.Memory{
			Owner: agentsvc.Owner{Issuer: issuer, Subject: m.sub}, Agent: m.agent, Context: "c", Task: "t", Role: agentsvc.RoleUser, Text: m.text,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	type list struct {
		Memories []struct {
			MemoryID  string `json:"memory_id"`
			User      string
			Agent     string
			ContextID string `json:"context_id"`
			TaskID    string `json:"task_id"`
			Role      string
			Text      string
			CreatedAt string `json:"created_at"`
		}
		Next string `json:"next_page_token"`
	}
	read := func(who, query string) (texts []string, out list) {
		t.Helper()
		resp, body := h.Do(t, http.MethodGet, "/memories"+query, tokens[who], nil)
		if resp.StatusCode != http.StatusOK {
			return []string{fmt.Sprint(resp.StatusCode)}, out
		}
		if err := json.Unmarshal([]byte(body), &out); err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Memories {
			texts = append(texts, m.Text)
		}
		return texts, out
	}
	for _, c := range []struct {
		who, query string
		want       []string
	}{
		{"ana", "", []string{"my cat is Tom", "my dog is Rex"}},
		{"ana", "?user=ana", []string{"my cat is Tom", "my dog is Rex"}},
		{"ana", "?user=bob", nil},
		{"ana", "?user=nobody", nil},
		{"ana", "?user=ana&issuer=elsewhere", nil},
		{"dev", "?user=ana", []string{"my cat is Tom", "my dog is Rex"}},
		{"bob", "?user=ana", nil},
		{"bob narrow", "", []string{"two of bob"}},
		{"vic", "?user=ana", []string{"my cat is Tom", "my dog is Rex"}},
		{"vic", "?user=ana&issuer=" + issuer, []string{"my cat is Tom", "my dog is Rex"}},
		{"vic", "?user=ana&issuer=elsewhere", nil},
		{"vic", "", nil},
		{"ana", "?page_token=x", []string{"400"}},
		{"ana", "?page_size=1000", []string{"400"}},
		{"ana", "?user=%00", []string{"400"}},
		{"ana", "?usr=bob", []string{"400"}},
		{"nobody", "?user=ana", []string{"404"}},
	} {
		if got, _ := read(c.who, c.query); !cmp.Equal(got, c.want) {
			t.Errorf("%s reads %s: %v, want %v", c.who, c.query, got, c.want)
		}
	}
	first, page := read("ana", "?page_size=1")
	second, nextPage := read("ana", "?page_size=1&page_token="+page.Next)
	if !cmp.Equal(append(first, second...), []string{"my cat is Tom", "my dog is Rex"}) || nextPage.Next != "" {
		t.Errorf("pages %v and %v, then %q", first, second, nextPage.Next)
	}
	if m := page.Memories[0]; m.User != "ana" || m.Agent != "two" || m.ContextID != "c" || m.TaskID != "t" || m.Role != "user" || m.CreatedAt == "" || m.MemoryID == "" {
		t.Errorf("a memory is shown as %+v", m)
	}
	for _, c := range []struct{ who, query, want string }{
		{"ana", "?user=bob", `{"erased":0}`},
		{"ana", "?user=nobody", `{"erased":0}`},
		{"dev", "?user=bob", `{"erased":0}`},
		{"vic", "?user=bob", "403"},
		{"bob narrow", "", `{"erased":1}`},
		{"olga", "", `{"erased":0}`},
		{"olga", "?usr=bob", "400"},
		{"olga", "?user=", "400"},
		{"olga", "?user=bob", `{"erased":1}`},
		{"ana", "", `{"erased":2}`},
		{"ana", "", `{"erased":0}`},
	} {
		resp, body := h.Do(t, http.MethodDelete, "/memories"+c.query, tokens[c.who], nil)
		if got := strings.TrimSpace(body); got != c.want && fmt.Sprint(resp.StatusCode) != c.want {
			t.Errorf("%s erases %s: %d %s, want %s", c.who, c.query, resp.StatusCode, got, c.want)
		}
	}
}

// tokenIssuer returns the issuer in a token.
func tokenIssuer(t *testing.T, token string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil || claims.Issuer == "" {
		t.Fatal(string(raw), err)
	}
	return claims.Issuer
}
