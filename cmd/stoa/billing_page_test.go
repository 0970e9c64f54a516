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

// TestPageWalks sends the requests of a section of a page and compares the responses with those of the page.
func TestPageWalks(t *testing.T) {
	t.Parallel()
	for page, section := range map[string]string{"billing": "From a price to an invoice", "self-service": "From a mistake to the revision before it"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			walkPage(t, "../../docs/"+page+".md", section)
		})
	}
}

// walkPage sends the requests of a section in order. Those below /admin have the admin secret, the others the token
// that an answer returned last. Days of 2026-11 stand for those of the present month.
func walkPage(t *testing.T, file, section string) {
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, probe, found := strings.Cut(string(page), "\n## "+section+"\n")
	probe, _, _ = strings.Cut(probe, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```(\\w+)(?: (\\d+))?\n(.*?)^```").FindAllStringSubmatch(probe, -1)
	if !found || len(blocks) < 20 || len(blocks)%2 != 0 {
		t.Fatalf("the page has %d blocks of the walk", len(blocks))
	}
	h := openTestServer(t, "sqlite://"+filepath.Join(t.TempDir(), "stoa.db"))
	month, token := time.Now().UTC().Format("2006-01"), ""
	today := func(text string) string { return strings.ReplaceAll(text, "2026-11", month) }
	for i := 0; i < len(blocks); i += 2 {
		head, body, _ := strings.Cut(today(strings.TrimSpace(blocks[i][3])), "\n\n")
		lines := strings.Split(head, "\n")
		method, path, _ := strings.Cut(lines[0], " ")
		bearer := token
		if strings.HasPrefix(path, "/admin/") {
			bearer = testSecret
		}
		status := cmp.Or(blocks[i+1][2], fmt.Sprint(http.StatusOK))
		var shown, came any
		if err := json.Unmarshal([]byte(cmp.Or(today(blocks[i+1][3]), "null")), &shown); err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		request := func() (string, bool) {
			req := h.newRequest(t, method, path, bearer, body)
			for _, line := range lines[1:] {
				name, value, _ := strings.Cut(line, ": ")
				req.Header.Set(name, value)
			}
			code, answer := h.sendRequest(t, req)
			came = nil
			return fmt.Sprint(code, " ", answer), json.Unmarshal([]byte(cmp.Or(answer, "null")), &came) == nil && fmt.Sprint(code) == status && matchesShown(shown, came)
		}
		answer, ok := request()
		for began := time.Now(); !ok && method == http.MethodGet && time.Since(began) < 5*time.Second; answer, ok = request() {
			time.Sleep(20 * time.Millisecond)
		}
		if !ok {
			t.Fatalf("%s\nis answered %s\nand not %s %s", head, answer, status, blocks[i+1][3])
		}
		object, _ := came.(map[string]any)
		if made, ok := object["access_token"].(string); ok {
			token = made
		}
	}
}

// matchesShown reports whether came is what a page shows. Members that the page leaves out are ignored.
func matchesShown(shown, came any) bool {
	switch shown := shown.(type) {
	case map[string]any:
		object, _ := came.(map[string]any)
		for key, value := range shown {
			if member, there := object[key]; !there || !matchesShown(value, member) {
				return false
			}
		}
		return object != nil
	case []any:
		list, _ := came.([]any)
		for i := range min(len(shown), len(list)) {
			if !matchesShown(shown[i], list[i]) {
				return false
			}
		}
		return len(list) == len(shown)
	}
	return reflect.DeepEqual(shown, came)
}
