package faults_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"stoa/agentsvc/vectorstore/remote/remotetest"
)

// vectorServer is the server of a vector store.
type vectorServer struct {
	kind, address, key string
	// list returns the ids of all vectors by collection.
	list func() map[string][]string
}

// startVectorServers starts a server of each kind of vector store: the real ones of Chroma and Weaviate if the test has their
// programs. Of the others there are none for tests.
func startVectorServers(t *testing.T, h *http.Client) (servers []vectorServer) {
	t.Helper()
	starts := map[string]func(testing.TB, *remotetest.Index) string{
		"qdrant": remotetest.StartQdrant, "milvus": remotetest.StartMilvus, "pinecone": remotetest.StartPinecone,
	}
	if program := os.Getenv("STOA_TEST_WEAVIATE"); program != "" {
		s := vectorServer{kind: "weaviate", address: remotetest.StartRealWeaviate(t, program), key: remotetest.Key}
		s.list = func() map[string][]string { return s.listWeaviate(t, h) }
		servers = append(servers, s)
	} else {
		reportSkipped(t, "the real Weaviate, a server with its API is used: STOA_TEST_WEAVIATE names no program (make weaviate)")
		starts["weaviate"] = remotetest.StartWeaviate
	}
	if program := os.Getenv("STOA_TEST_CHROMA"); program != "" {
		folder := t.TempDir()
		s := vectorServer{kind: "chroma", address: remotetest.StartServer(t, program, nil, func(port string) []string {
			return []string{"run", "--path", folder, "--host", "127.0.0.1", "--port", port}
		})}
		s.list = func() map[string][]string { return s.listChroma(t, h) }
		servers = append(servers, s)
	} else {
		reportSkipped(t, "Chroma: STOA_TEST_CHROMA names no program (.ci/vector-stores)")
	}
	for kind, start := range starts {
		index := remotetest.NewIndex()
		servers = append(servers, vectorServer{kind, start(t, index), remotetest.Key, index.List})
	}
	return servers
}

// requestServer calls the API of the server.
func (s vectorServer) requestServer(t *testing.T, h *http.Client, method, path string, body, into any) {
	t.Helper()
	c := &client{baseURL: "http://" + s.address, token: s.key, http: h}
	if err := c.requestJSON(t.Context(), method, path, body, into); err != nil {
		t.Fatal(s.kind, err)
	}
}

// listChroma is list of a real Chroma.
func (s vectorServer) listChroma(t *testing.T, h *http.Client) map[string][]string {
	t.Helper()
	const path = "/api/v2/tenants/default_tenant/databases/default_database/collections"
	var collections []struct{ ID, Name string }
	s.requestServer(t, h, http.MethodGet, path, nil, &collections)
	all := map[string][]string{}
	for _, c := range collections {
		var found struct{ IDs []string }
		s.requestServer(t, h, http.MethodPost, path+"/"+c.ID+"/get", map[string]any{"include": []string{}}, &found)
		all[c.Name] = found.IDs
	}
	return all
}

// listWeaviate is list of a real Weaviate.
func (s vectorServer) listWeaviate(t *testing.T, h *http.Client) map[string][]string {
	t.Helper()
	var schema struct{ Classes []struct{ Class string } }
	s.requestServer(t, h, http.MethodGet, "/v1/schema", nil, &schema)
	all := map[string][]string{}
	for _, c := range schema.Classes {
		ids, after := []string{}, ""
		for {
			var page struct{ Objects []struct{ ID string } }
			s.requestServer(t, h, http.MethodGet, "/v1/objects?limit=1000&class="+c.Class+"&after="+after, nil, &page)
			if len(page.Objects) == 0 {
				break
			}
			for _, o := range page.Objects {
				ids = append(ids, o.ID)
			}
			after = ids[len(ids)-1]
		}
		all[c.Class] = ids
	}
	return all
}

// vectorLibrary is an app with a document store in each vector store, and what its documents are to be.
type vectorLibrary struct {
	*cluster
	servers  []vectorServer
	editions map[string]map[string]int // the edition of each document, by store and document
	next     map[string]*int           // the number of the next document of each store
	token    string
	calls    atomic.Int64 // the requests about documents that were answered
}

const vectorApp = "vectors"

// createVectorLibrary creates the app.
func (c *cluster) createVectorLibrary(servers []vectorServer) *vectorLibrary {
	c.Helper()
	l := &vectorLibrary{cluster: c, servers: servers, editions: map[string]map[string]int{}, next: map[string]*int{}}
	for _, s := range servers {
		l.editions[s.kind], l.next[s.kind] = map[string]int{}, new(int)
	}
	c.createApp(vectorApp, l.config(200))
	l.token = c.createToken(vectorApp, "ana")
	return l
}

// config returns the app's configuration with chunks of a size.
func (l *vectorLibrary) config(chunkSize int) string {
	stores, servers := "document_stores:\n", "vector_stores:\n"
	for _, s := range l.servers {
		host, port, err := net.SplitHostPort(s.address)
		l.requireNoError(err)
		stores += fmt.Sprintf("  %s: {source: {type: upload}, embedder: local, vector_store: %[1]s, chunking: {size: %d, min_size: 20}}\n", s.kind, chunkSize)
		servers += fmt.Sprintf("  %s: {type: %[1]s, host: %s, port: %s", s.kind, host, port)
		if s.key != "" {
			servers += ", api_key: " + s.key
		}
		servers += "}\n"
	}
	return "llms: {script: {provider: scripted}}\nagents: {assistant: {llm: script}}\nembedders: {local: {provider: hashing}}\n" + stores + servers
}

// edition is a line of each chunk of an edition of a document.
func edition(document string, number int) string {
	return fmt.Sprintf("Edition %d. of %s", number, document)
}

// writeDocument uploads an edition of a document through a process.
func (l *vectorLibrary) writeDocument(n *node, store, document string, number int) {
	l.Helper()
	lines := 10
	if strings.HasSuffix(document, "0.txt") {
		lines = 500 // more chunks than one transaction writes
	}
	text := strings.Repeat(edition(document, number)+" says what to do.\n\n", lines)
	l.call(n, http.MethodPut, store, document, json.RawMessage(text))
	l.editions[store][document] = number
}

// call sends a request about a document.
func (l *vectorLibrary) call(n *node, method, store, document string, body any) {
	l.Helper()
	as := &client{baseURL: n.baseURL, token: l.token, http: l.client}
	a, err := as.doRequest(l.Context(), method, "/v1/document-stores/"+store+"/documents/"+document, body, "Content-Type", "text/plain")
	if err != nil || a.status/100 != 2 {
		l.Errorf("%s %s of %s: %d %s %v", method, document, store, a.status, a.body, err)
	}
	l.calls.Add(1)
}

// changeDocuments uploads new documents of a store through a process, replaces a quarter as many, and deletes as many.
func (l *vectorLibrary) changeDocuments(r *rand.Rand, n *node, store string, added int) {
	l.Helper()
	editions, next := l.editions[store], l.next[store]
	known := slices.Sorted(maps.Keys(editions))
	r.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	for range added {
		l.writeDocument(n, store, fmt.Sprintf("%04d.txt", *next), 1)
		*next++
	}
	few := min((added+3)/4, len(known)/2)
	for _, document := range known[:few] {
		l.writeDocument(n, store, document, editions[document]+1)
	}
	for _, document := range known[few : 2*few] {
		l.call(n, http.MethodDelete, store, document, nil)
		delete(editions, document)
	}
}

// countPending returns how many documents of a store wait.
func (l *vectorLibrary) countPending(store string) int {
	return l.countRows(`SELECT COUNT(*) FROM document WHERE state = 'pending' AND store = '` + store + `'`)
}

// settle waits until everything is indexed and removed. Removals that were noted for later become due at once, as do the
// passes that carry them out.
func (l *vectorLibrary) settle() {
	l.Helper()
	l.waitWithin(5*time.Minute, "all documents are indexed in the live generation", func() bool {
		return l.countRows(`SELECT (SELECT COUNT(*) FROM document WHERE state <> 'indexed') + (SELECT COUNT(*) FROM document_store WHERE building <> 0)`) == 0
	})
	l.waitWithin(2*time.Minute, "nothing waits for its removal", func() bool {
		// Rows that a process works on stay as they are: it locks them in another order, so that waiting for it could be a
		// deadlock.
		l.querySQL(`UPDATE removed_chunk SET available_at = 0 WHERE ctid IN (SELECT ctid FROM removed_chunk WHERE available_at <> 0 FOR UPDATE SKIP LOCKED)`)
		l.querySQL(`UPDATE index_pass SET due_at = 0 WHERE ctid IN (SELECT ctid FROM index_pass WHERE due_at <> 0 FOR UPDATE SKIP LOCKED)`)
		return l.countRows(`SELECT (SELECT COUNT(*) FROM removed_chunk) + (SELECT COUNT(*) FROM hidden_revision)`) == 0
	})
}

// check compares the documents of a store, their chunks and the vectors in its vector store with what they are to be.
func (l *vectorLibrary) check(s vectorServer) {
	l.Helper()
	found, wrong := map[string]int{}, 0
	var chunks []string
	for _, row := range l.querySQL(`SELECT k.id, k.document, k.text, l.document IS NOT NULL FROM chunk k
		LEFT JOIN document_live l ON l.tenant = k.tenant AND l.store = k.store AND l.document = k.document AND l.generation = k.generation AND l.revision = k.revision
		WHERE k.store = $1`, s.kind) {
		id, document, text, isLive := row[0].(string), row[1].(string), row[2].(string), row[3].(bool)
		chunks = append(chunks, id)
		found[document] = l.editions[s.kind][document]
		if !isLive || !strings.Contains(text, edition(document, found[document])) {
			wrong++
		}
	}
	if diff := cmp.Diff(l.editions[s.kind], found); diff != "" || wrong > 0 {
		l.Errorf("%s: %d chunks are of other editions; documents (-want +got):\n%s", s.kind, wrong, diff)
	}
	if n := l.countRows(`SELECT COUNT(*) FROM document_live l WHERE l.store = '` + s.kind + `' AND (l.collection = '' OR l.chunks <> (SELECT COUNT(DISTINCT k.ordinal)
		FROM chunk k WHERE k.tenant = l.tenant AND k.store = l.store AND k.document = l.document))`); n != 0 {
		l.Errorf("%s: %d documents do not have each chunk once", s.kind, n)
	}
	var vectors []string
	all := s.list()
	for _, ids := range all {
		vectors = append(vectors, ids...)
	}
	slices.Sort(chunks)
	slices.Sort(vectors)
	if diff := cmp.Diff(chunks, vectors); diff != "" || len(all) != 1 {
		l.Errorf("%s: %d collections have %d vectors for %d chunks (-chunks +vectors):\n%.2000s", s.kind, len(all), len(vectors), len(chunks), diff)
	}
	reportf(l.T, "%s: %d documents, %d chunks, %d vectors", s.kind, len(found), len(chunks), len(vectors))
}

// TestVectorKills kills processes after random numbers of uploads, repeatedly, while they index documents into a vector store of each kind
// outside the database. Documents are uploaded, replaced and deleted meanwhile, and changed settings rebuild the indexes. At the
// end each vector store has the vectors of exactly the chunks that are searchable. It covers F2 for vector stores.
func TestVectorKills(t *testing.T) {
	t.Parallel()
	kills := readCount(t, "STOA_FAULTS_VECTOR_KILLS", 50, 8)
	documents := readCount(t, "STOA_FAULTS_VECTOR_DOCUMENTS", 500, 80)
	r := newRand(t)
	c := startCluster(t, clusterOptions{nodes: 2})
	l := c.createVectorLibrary(startVectorServers(t, c.client))
	during, began := map[string]int{}, time.Now()
	for kill := range kills {
		victim, other := kill%2, 1-kill%2
		if kill == kills/2 {
			c.requireNoError(c.nodes[other].adminClient().requestJSON(t.Context(), http.MethodPatch, "/admin/apps/"+vectorApp, map[string]any{"config": l.config(300)}, nil))
		}
		added := documents*(kill+1)/kills - documents*kill/kills
		moment := l.calls.Load() + int64(r.IntN(added*len(l.servers)+1))
		var writing sync.WaitGroup
		for _, s := range l.servers {
			random := rand.New(rand.NewPCG(r.Uint64(), 1))
			writing.Go(func() {
				l.changeDocuments(random, c.nodes[other], s.kind, added)
			})
		}
		c.waitWithin(setupTimeout, "the moment of the kill comes", func() bool { return l.calls.Load() >= moment })
		c.nodes[victim].killProcess()
		for _, s := range l.servers {
			if l.countPending(s.kind) > 0 {
				during[s.kind]++
			}
		}
		writing.Wait()
		c.nodes[victim].restartProcess()
	}
	l.settle()
	reportf(t, "%d kills while documents waited in %v, %v", kills, during, time.Since(began).Round(time.Second))
	for _, s := range l.servers {
		if during[s.kind] == 0 {
			t.Errorf("no process was killed while documents of %s waited: nothing was tested", s.kind)
		}
		l.check(s)
	}
}
