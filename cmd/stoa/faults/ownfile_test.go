package faults_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the tenant writes its file with it
)

// TestF18OwnFile suspends and deletes an app whose own SQLite file has a trigger that never ends: no processor time
// is used afterwards, and another app is served.
func TestF18OwnFile(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{nodes: 1, sqlite: true})
	n := c.nodes[0]
	root, err := filepath.EvalSymlinks(t.TempDir())
	c.requireNoError(err)
	file := filepath.Join(root, "own.db")
	body := map[string]any{"name": "mallory", "grants": []any{"sqlite", map[string]any{"filesystem": []string{root}}}, "config": fmt.Sprintf(`
llms: {demo: {provider: scripted}}
agents: {helper: {llm: demo}}
storage: {sessions: {database: own}}
databases: {own: {driver: sqlite, database: %q}}
`, file)}
	c.requireNoError(n.adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps", body, nil))
	eve := &client{baseURL: n.baseURL, token: c.createToken("mallory", "eve"), http: c.client}
	if got, err := eve.sendMessage(t.Context(), message{agent: "helper", text: "hi"}); err != nil || got.lastText() != "You said: hi" {
		t.Fatalf("%q %v", got.lastText(), err)
	}
	dedicated, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	c.requireNoError(err)
	defer func() { _ = dedicated.Close() }()
	_, err = dedicated.ExecContext(t.Context(), `CREATE TRIGGER boom AFTER INSERT ON session_turn BEGIN
		SELECT count(*) FROM (WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c); END`)
	c.requireNoError(err)

	idle := func(when string) {
		t.Helper()
		const watched = 2 * time.Second
		before := n.processorTime()
		time.Sleep(watched)
		used := n.processorTime() - before
		reportf(t, "%s: %v of processor time in %v", when, used, watched)
		if used > watched/3 {
			t.Errorf("%s: the process went on working for %v of processor time in %v", when, used, watched)
		}
	}
	refused := func() {
		t.Helper()
		c.waitWithin(5*time.Second, "the process refuses", func() bool {
			_, err := eve.sendMessage(t.Context(), message{agent: "helper", text: "hi", background: true})
			return err != nil
		})
	}
	for range 3 {
		_, err := eve.sendMessage(t.Context(), message{agent: "helper", text: "hi", background: true})
		c.requireNoError(err)
	}
	c.requireNoError(n.adminClient().requestJSON(t.Context(), http.MethodPost, "/admin/apps/mallory:suspend", map[string]any{}, nil))
	refused()
	idle("suspended")
	c.requireNoError(n.adminClient().requestJSON(t.Context(), http.MethodDelete, "/admin/apps/mallory", nil, nil))
	refused()
	idle("deleted")
	if got, err := n.sendMessage(t.Context(), message{text: "hi"}); err != nil || got.lastText() != "hi" {
		t.Errorf("the neighbour is answered %q, %v", got.lastText(), err)
	}
}
