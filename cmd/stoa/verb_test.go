package main

import (
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVerbMethods sends every method to every path that ends in a custom verb: one that the verb does not have is
// answered with 405, and Allow lists those that it has.
func TestVerbMethods(t *testing.T) {
	t.Parallel()
	onEachEngine(t, func(t *testing.T, h *testServer) {
		h.requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, map[string]any{"name": "acme", "config": `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}}
document_stores: {manual: {source: {type: upload}}}
`})
		token := h.createToken(t, "acme", "ana", map[string]any{"roles": []string{"admin"}})
		frontend, err := h.NewFrontend(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
		if err != nil {
			t.Fatal(err)
		}
		allowed := map[string][]string{} // by pattern
		for _, route := range frontend.Routes() {
			for _, pattern := range append([]string{route.Pattern}, route.Aliases...) {
				if i := strings.LastIndexAny(pattern, ":/"); pattern[i] != ':' {
					continue
				}
				allowed[pattern] = append(allowed[pattern], route.Method)
				if route.Method == http.MethodGet {
					allowed[pattern] = append(allowed[pattern], http.MethodHead)
				}
			}
		}
		if len(allowed) < 20 {
			t.Errorf("only %d patterns end in a verb", len(allowed))
		}
		parameter := regexp.MustCompile(`\{\w+\}`)
		fill := strings.NewReplacer("{app}", "acme", "{agent}", "assistant", "{store}", "manual")
		for pattern, methods := range allowed {
			path, bearer := parameter.ReplaceAllString(fill.Replace(pattern), "1"), testSecret
			if !strings.HasPrefix(pattern, "/admin/") {
				path, bearer = "/apps/acme"+path, token
			}
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				if slices.Contains(methods, method) {
					continue
				}
				resp, err := http.DefaultClient.Do(h.newRequest(t, method, path, bearer, nil))
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				got := resp.Header.Values("Allow")
				slices.Sort(got)
				slices.Sort(methods)
				if diff := cmp.Diff(methods, got); resp.StatusCode != http.StatusMethodNotAllowed || diff != "" {
					t.Errorf("%s %s: %d (-verb +Allow) %s", method, path, resp.StatusCode, diff)
				}
			}
		}
	})
}
