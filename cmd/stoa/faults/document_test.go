package faults_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDocumentKills kills processes at random moments, repeatedly, while they index a folder: at the end the store has
// exactly the documents of the folder, each chunk once, and no vector without its chunk. It covers F2 for documents.
func TestDocumentKills(t *testing.T) {
	t.Parallel()
	kills := readCount(t, "STOA_FAULTS_DOCUMENT_KILLS", 200, 10)
	documents := readCount(t, "STOA_FAULTS_DOCUMENTS", 2000, 200)
	r := newRand(t)
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o755); err != nil { //nolint:gosec // the processes may run as another user
		t.Fatal(err)
	}
	for i := range documents {
		text := strings.Repeat(fmt.Sprintf("Section %d of the handbook says what to do.\n\n", i), 12)
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%04d.txt", i)), []byte(text), 0o644); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	}
	// Of the test's own, in which programs of another user find their folders.
	temporary := t.TempDir()
	if err := os.Chmod(temporary, 0o777); err != nil { //nolint:gosec // as above
		t.Fatal(err)
	}
	c := startCluster(t, clusterOptions{nodes: 2, env: func(int) []string { return []string{"TMPDIR=" + temporary} }})
	c.createLibrary(folder)
	began, during := time.Now(), 0
	for range kills {
		time.Sleep(time.Duration(r.IntN(400)) * time.Millisecond)
		n := c.nodes[r.IntN(len(c.nodes))]
		n.killProcess()
		if c.countWaiting() > 0 {
			during++
		}
		n.restartProcess()
	}
	c.waitWithin(15*time.Minute, "all documents are indexed", func() bool { return c.countIndexed() == documents && c.countWaiting() == 0 })
	reportf(t, "%d kills, %d of them while documents waited, %d documents, %v", kills, during, documents, time.Since(began).Round(time.Second))
	c.checkLibrary(documents)
	// The next start has removed what each killed process had in it.
	c.waitWithin(time.Minute, "no temporary folder is left", func() bool {
		left, err := os.ReadDir(temporary)
		c.requireNoError(err)
		return len(left) == 0
	})
}

// createLibrary creates an app whose only document store has the files of folder.
func (c *cluster) createLibrary(folder string) {
	c.Helper()
	config := strings.ReplaceAll(`
llms: {script: {provider: scripted}}
agents: {assistant: {llm: script}}
embedders: {local: {provider: hashing}}
document_stores:
  library:
    source: {type: directory, path: "FOLDER", include: ["**/*.txt"]}
    embedder: local
    chunking: {size: 200, min_size: 20}
`, "FOLDER", folder)
	body := map[string]any{"name": "library", "config": config, "grants": []any{"private_network", map[string]any{"filesystem": []string{folder}}}}
	c.requireNoError(c.nodes[0].adminClient().requestJSON(c.Context(), http.MethodPost, "/admin/apps", body, nil))
}

// countRows returns the number that a query selects.
func (c *cluster) countRows(query string) int {
	c.Helper()
	n, ok := c.querySQL(query)[0][0].(int64)
	if !ok {
		c.Fatalf("%s selects no number", query)
	}
	return int(n)
}

// countWaiting returns how many documents are not indexed yet, at least 1 before the first was listed.
func (c *cluster) countWaiting() int {
	return c.countRows(`SELECT CASE WHEN COUNT(*) = 0 THEN 1 ELSE COUNT(*) FILTER (WHERE state = 'pending') END FROM document`)
}

func (c *cluster) countIndexed() int {
	return c.countRows(`SELECT COUNT(*) FROM document WHERE state = 'indexed'`)
}

// checkLibrary checks the rows of an indexed folder of documents.
func (c *cluster) checkLibrary(documents int) {
	c.Helper()
	for _, check := range []struct {
		what, query string
		want        int
	}{
		{"documents", `SELECT COUNT(*) FROM document`, documents},
		{"searchable documents at their present revision", `SELECT COUNT(*) FROM document d JOIN document_live l ON l.tenant = d.tenant AND l.store = d.store AND l.document = d.id AND l.revision = d.revision`, documents},
		{"searchable documents", `SELECT COUNT(*) FROM document_live`, documents},
		{"documents whose chunks are not there once each", `SELECT COUNT(*) FROM document_live l WHERE l.chunks < 2
			OR l.chunks <> (SELECT COUNT(*) FROM chunk k WHERE k.tenant = l.tenant AND k.store = l.store AND k.document = l.document)
			OR l.chunks <> (SELECT COUNT(DISTINCT k.ordinal) FROM chunk k WHERE k.tenant = l.tenant AND k.store = l.store AND k.document = l.document AND k.revision = l.revision AND k.generation = l.generation)`, 0},
		{"chunks without a vector, or vectors without a chunk", `SELECT COUNT(*) FROM chunk k FULL JOIN chunk_vector v ON v.tenant = k.tenant AND v.id = k.id WHERE k.id IS NULL OR v.id IS NULL`, 0},
		{"removals that wait", `SELECT COUNT(*) FROM removed_chunk`, 0},
		{"sums of documents that are wrong", `SELECT COUNT(*) FROM document_total t WHERE t.generation = 0 AND (
				t.documents <> (SELECT COUNT(*) FROM document d WHERE d.tenant = t.tenant AND d.store = t.store)
				OR t.bytes <> (SELECT COALESCE(SUM(octet_length(b.body)), 0) FROM document_body b WHERE b.tenant = t.tenant AND b.store = t.store))
			OR t.generation <> 0 AND (t.documents, t.chunks) <> (SELECT COUNT(*), COALESCE(SUM(l.chunks), 0) FROM document_live l
				WHERE l.tenant = t.tenant AND l.store = t.store AND l.generation = t.generation)`, 0},
	} {
		if n := c.countRows(check.query); n != check.want {
			c.Errorf("%d %s, want %d", n, check.what, check.want)
		}
	}
}
