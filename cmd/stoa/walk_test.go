package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestBillingWalk sends the requests of the page about billing, and holds what it shows of the answers to what comes back.
func TestBillingWalk(t *testing.T) {
	page, err := os.ReadFile("../../docs/billing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, walk, found := strings.Cut(string(page), "\n## From a price to an invoice\n")
	walk, _, _ = strings.Cut(walk, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```(\\w+)(?: (\\d+))?\n(.*?)^```").FindAllStringSubmatch(walk, -1)
	if !found || len(blocks) < 20 || len(blocks)%2 != 0 {
		t.Fatalf("the page has %d blocks of the walk", len(blocks))
	}
	h := openTestHouse(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	month, token := time.Now().UTC().Format("2006-01"), ""
	today := func(text string) string { return strings.ReplaceAll(text, "2026-11", month) }
	for i := 0; i < len(blocks); i += 2 {
		head, body, _ := strings.Cut(today(strings.TrimSpace(blocks[i][3])), "\n\n")
		method, path, _ := strings.Cut(head, " ")
		bearer := token
		if strings.HasPrefix(path, "/admin/") {
			bearer = testSecret
		}
		status := cmp.Or(blocks[i+1][2], fmt.Sprint(http.StatusOK))
		var shown, came any
		if err := json.Unmarshal([]byte(today(blocks[i+1][3])), &shown); err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		ask := func() (string, bool) {
			code, answer := h.ask(t, method, path, bearer, body)
			came = nil
			return fmt.Sprint(code, " ", answer), json.Unmarshal([]byte(answer), &came) == nil && fmt.Sprint(code) == status && shows(shown, came)
		}
		answer, ok := ask()
		for began := time.Now(); !ok && method == http.MethodGet && time.Since(began) < 5*time.Second; answer, ok = ask() {
			time.Sleep(20 * time.Millisecond)
		}
		if !ok {
			t.Fatalf("%s\nis answered %s\nand not %s %s", head, answer, status, blocks[i+1][3])
		}
		if made, ok := came.(map[string]any)["access_token"].(string); ok {
			token = made
		}
	}
}

// shows reports whether came is what a page shows, members left out aside.
func shows(shown, came any) bool {
	switch shown := shown.(type) {
	case map[string]any:
		object, _ := came.(map[string]any)
		for key, value := range shown {
			if member, there := object[key]; !there || !shows(value, member) {
				return false
			}
		}
		return object != nil
	case []any:
		list, _ := came.([]any)
		for i := range min(len(shown), len(list)) {
			if !shows(shown[i], list[i]) {
				return false
			}
		}
		return len(list) == len(shown)
	}
	return reflect.DeepEqual(shown, came)
}
