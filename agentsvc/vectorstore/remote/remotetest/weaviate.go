package remotetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
)

// weaviateRequest is the body of any request.
type weaviateRequest struct {
	Class             string
	Vectorizer        string
	VectorIndexConfig struct{ Distance string }
	Objects           []struct {
		Class      string
		ID         string
		Vector     []float32
		Properties map[string]any
	}
	Match struct {
		Class string
		Where struct {
			Path           []string
			Operator       string
			ValueTextArray []string
		}
	}
	Query string
}

// weaviateQuery matches the queries of a store: class, limit, and the ids or the vector.
var weaviateQuery = regexp.MustCompile(`^\{Get\{(\w+)\(limit:(\d+) (?:where:\{path:\["id"\] operator:ContainsAny valueText:(\[.*\])\}|nearVector:\{vector:(\[.*\])\})\)\{_additional\{id distance\}\}\}\}$`)

// StartWeaviate starts a server over index with the shapes that a real one has in TestRealStore, and returns its address.
func StartWeaviate(t testing.TB, index *Index) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in weaviateRequest
		if r.Header.Get("Authorization") != "Bearer "+Key {
			http.Error(w, `{"code": 401, "message": "a secret"}`, http.StatusUnauthorized)
			return
		}
		if r.ContentLength > 0 && json.NewDecoder(r.Body).Decode(&in) != nil {
			http.Error(w, `{}`, http.StatusUnprocessableEntity)
			return
		}
		class, isSchema := strings.CutPrefix(r.URL.Path, "/v1/schema/")
		status, answer := http.StatusOK, any(nil)
		switch endpoint := r.Method + " " + r.URL.Path; {
		case r.Method == http.MethodGet && isSchema && !index.Has(class):
			status = http.StatusNotFound
		case r.Method == http.MethodGet && isSchema:
			answer = map[string]any{"class": class}
		case r.Method == http.MethodDelete && isSchema:
			index.Drop(class)
		case endpoint == "POST /v1/schema":
			if in.Vectorizer != "none" || in.VectorIndexConfig.Distance != "cosine" || !index.Create(in.Class) {
				status, answer = http.StatusUnprocessableEntity, map[string]any{"error": []any{map[string]any{"message": "a secret"}}}
			}
		case endpoint == "POST /v1/batch/objects":
			answer = storeWeaviateObjects(t, index, in)
		case endpoint == "DELETE /v1/batch/objects" && !index.Has(in.Match.Class):
			status, answer = http.StatusInternalServerError, map[string]any{"error": []any{map[string]any{"message": "a secret"}}}
		case endpoint == "DELETE /v1/batch/objects":
			index.Delete(in.Match.Class, in.Match.Where.ValueTextArray)
			answer = map[string]any{"results": map[string]any{"failed": 0}}
		case endpoint == "POST /v1/graphql":
			answer = answerWeaviateQuery(index, in.Query)
		default:
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		if answer != nil {
			_ = json.NewEncoder(w).Encode(answer)
		}
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// storeWeaviateObjects answers a batch of objects.
func storeWeaviateObjects(t testing.TB, index *Index, in weaviateRequest) any {
	var results []any
	for _, o := range in.Objects {
		if len(o.Properties) > 0 {
			t.Error("properties are sent")
		}
		status := "FAILED"
		if uuid.Validate(o.ID) == nil && index.Has(o.Class) {
			status = "SUCCESS"
			index.Put(o.Class, o.ID, o.Vector)
		}
		results = append(results, map[string]any{"id": o.ID, "result": map[string]any{"status": status}})
	}
	return results
}

// answerWeaviateQuery answers a query of GraphQL.
func answerWeaviateQuery(index *Index, text string) any {
	parts := weaviateQuery.FindStringSubmatch(text)
	if len(parts) == 0 || !index.Has(parts[1]) {
		return map[string]any{"data": map[string]any{"Get": nil}, "errors": []any{map[string]any{"message": "a secret"}}}
	}
	limit, _ := strconv.Atoi(parts[2])
	objects := []any{}
	addObject := func(id string, distance any) {
		objects = append(objects, map[string]any{"_additional": map[string]any{"id": id, "distance": distance}})
	}
	if parts[3] != "" {
		var ids []string
		_ = json.Unmarshal([]byte(parts[3]), &ids)
		for _, id := range index.Find(parts[1], ids) {
			addObject(id, nil)
		}
	} else {
		var vector []float32
		_ = json.Unmarshal([]byte(parts[4]), &vector)
		for _, m := range index.Search(parts[1], vector, limit) {
			addObject(m.ID, 1-m.Score)
		}
	}
	return map[string]any{"data": map[string]any{"Get": map[string]any{parts[1]: objects}}}
}

// StartRealWeaviate starts Weaviate's own server, the program that .ci/weaviate builds, with [Key], and returns its address.
func StartRealWeaviate(t *testing.T, program string) string {
	t.Helper()
	return StartServer(t, program, []string{
		"PERSISTENCE_DATA_PATH=" + t.TempDir(), "AUTHENTICATION_APIKEY_ENABLED=true", "AUTHENTICATION_APIKEY_ALLOWED_KEYS=" + Key,
		"AUTHENTICATION_APIKEY_USERS=stoa", "AUTHORIZATION_ADMINLIST_ENABLED=true", "AUTHORIZATION_ADMINLIST_USERS=stoa",
		"DEFAULT_VECTORIZER_MODULE=none", "CLUSTER_HOSTNAME=node1", "CLUSTER_ADVERTISE_ADDR=127.0.0.1", "DISABLE_TELEMETRY=true",
		"RAFT_BOOTSTRAP_EXPECT=1", "GRPC_PORT=" + freePort(t), "CLUSTER_GOSSIP_BIND_PORT=" + freePort(t), "CLUSTER_DATA_BIND_PORT=" + freePort(t),
		"RAFT_PORT=" + freePort(t), "RAFT_INTERNAL_RPC_PORT=" + freePort(t), "GO_PROFILING_DISABLE=true", "PROMETHEUS_MONITORING_ENABLED=false",
	}, func(port string) []string {
		return []string{"--scheme", "http", "--host", "127.0.0.1", "--port", port}
	})
}

// freePort returns the number of a free port.
func freePort(t testing.TB) string {
	l := Listen(t)
	defer func() { _ = l.Close() }()
	_, port, _ := strings.Cut(l.Addr().String(), ":")
	return port
}
