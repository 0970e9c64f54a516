package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/tenancy/db/dbtest"
)

// TestDeletedIsInvisibleEverywhere deletes documents through one of two servers on one database, and searches through the other as
// soon as the deletion is answered: none of 1,000 searches of a kind of store returns a deleted document. One server indexes, and
// has vectors in its memory that the other cannot delete, so that each deletion has a server that still knows the document.
func TestDeletedIsInvisibleEverywhere(t *testing.T) {
	t.Parallel()
	stores := map[string]string{"platform": "", "chromem": "{type: chromem}"}
	if program := os.Getenv("STOA_TEST_CHROMA"); program == "" {
		t.Log("ATTENTION: without STOA_TEST_CHROMA (the program that .ci/vector-stores prints) deletions from the real Chroma are not tested")
	} else {
		folder := t.TempDir()
		address := remotetest.StartServer(t, program, nil, func(port string) []string {
			return []string{"run", "--path", folder, "--host", "127.0.0.1", "--port", port}
		})
		stores["chroma"] = newVectorStoreConfig("chroma", address, "")
	}
	// There is no program of a server of the first three for tests.
	for kind, start := range map[string]func(testing.TB, *remotetest.Index) string{"qdrant": remotetest.StartQdrant, "milvus": remotetest.StartMilvus, "pinecone": remotetest.StartPinecone} {
		stores[kind] = newVectorStoreConfig(kind, start(t, remotetest.NewIndex()), remotetest.Key)
	}
	if program := os.Getenv("STOA_TEST_WEAVIATE"); program != "" {
		stores["weaviate"] = newVectorStoreConfig("weaviate", remotetest.StartRealWeaviate(t, program), remotetest.Key)
	} else {
		t.Log("ATTENTION: without STOA_TEST_WEAVIATE (the program that .ci/weaviate prints) deletions from a server with Weaviate's API are tested, and not from the real one")
		stores["weaviate"] = newVectorStoreConfig("weaviate", remotetest.StartWeaviate(t, remotetest.NewIndex()), remotetest.Key)
	}
	database := dbtest.NewPostgresURL(t)
	indexer := startProcess(t, t.TempDir(), "--database", database)
	web := startProcess(t, t.TempDir(), "--database", database, "--role", "web")
	for name, vectors := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			newDeletion(t, name, vectors, indexer.testServer, web.testServer).checkSearches(t, 20, 50)
		})
	}
}

// newVectorStoreConfig returns the configuration of a vector store at an address.
func newVectorStoreConfig(kind, address, key string) string {
	host, port, _ := strings.Cut(address, ":")
	config := fmt.Sprintf("type: %s, host: %s, port: %s", kind, host, port)
	if key != "" {
		config += ", api_key: " + key
	}
	return "{" + config + "}"
}

// deletion is an app with documents that are deleted one after another.
type deletion struct {
	servers []*testServer
	token   string
}

// newDeletion creates an app whose document store keeps its vectors in a vector store, or in the database without one.
func newDeletion(t *testing.T, app, vectors string, servers ...*testServer) deletion {
	t.Helper()
	config := `
llms: {m: {provider: scripted}}
agents: {assistant: {llm: m}}
embedders: {words: {provider: hashing}}
document_stores: {manual: {source: {type: upload}, embedder: words`
	if vectors == "" {
		config += "}}\n"
	} else {
		config += ", vector_store: vectors}}\nvector_stores: {vectors: " + vectors + "}\n"
	}
	body := map[string]any{"name": app, "config": config, "grants": []string{"private_network"}}
	servers[0].requireStatus(t, http.StatusCreated, nil, "POST", "/admin/apps", testSecret, body)
	return deletion{servers, servers[0].createToken(t, app, "dev", map[string]any{"roles": []string{"developer"}})}
}

// checkSearches uploads documents, and deletes each through one server before it is searched through the other.
func (d deletion) checkSearches(t *testing.T, documents, searches int) {
	t.Helper()
	path := func(i int) string { return fmt.Sprintf("/v1/document-stores/manual/documents/%d.txt", i) }
	for i := range documents {
		text := fmt.Sprintf("Chapter %d: the valve number%d closes when the pressure falls.", i, i)
		d.servers[i%2].requireStatus(t, http.StatusAccepted, nil, "PUT", path(i), d.token, text)
	}
	modes := []string{"hybrid", "vector", "text"}
	var searched, wrong atomic.Int64
	dbtest.WaitUntil(t, "the documents are indexed, and their words are found everywhere", func() bool {
		return len(d.search(t, d.servers[1], "text", "valve")) == documents && len(d.search(t, d.servers[0], "vector", "valve")) == documents
	})
	for i := range documents {
		name, query := fmt.Sprintf("%d.txt", i), fmt.Sprintf("valve number%d", i)
		from, other := d.servers[i%2], d.servers[(i+1)%2]
		for _, mode := range modes {
			if mode == "vector" && other != d.servers[0] {
				continue // the memory of a web process may have no vectors
			}
			if found := d.search(t, other, mode, query); !slices.Contains(found, name) {
				t.Fatalf("before its deletion, the search by %s finds %v and not %s", mode, found, name)
			}
		}
		from.requireStatus(t, http.StatusNoContent, nil, "DELETE", path(i), d.token, nil)
		var searching sync.WaitGroup
		for worker := range 5 {
			searching.Go(func() {
				for n := worker; n < searches; n += 5 {
					searched.Add(1)
					if found := d.search(t, other, modes[n%len(modes)], query); slices.Contains(found, name) {
						wrong.Add(1)
						t.Errorf("search %d by %s finds the deleted document %s", n, modes[n%len(modes)], name)
					}
				}
			})
		}
		searching.Wait()
		other.requireStatus(t, http.StatusNotFound, nil, "GET", path(i)+"/content", d.token, nil)
	}
	t.Logf("%d of %d searches that began after the answer of a deletion found the document", wrong.Load(), searched.Load())
}

// search returns the ids of the documents that a search through a server finds.
func (d deletion) search(t *testing.T, at *testServer, mode, query string) (found []string) {
	t.Helper()
	status, text := at.doRequest(t, "POST", "/v1/document-stores/manual:search", d.token, map[string]any{"query": query, "mode": mode, "limit": 100})
	var answer struct {
		Results []struct{ Document string }
	}
	if err := json.Unmarshal([]byte(text), &answer); status != http.StatusOK || err != nil {
		t.Errorf("search by %s: %d %s", mode, status, text)
	}
	for _, r := range answer.Results {
		found = append(found, r.Document)
	}
	return found
}
