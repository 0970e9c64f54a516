package remotetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// pineconeRequest is the body of any request.
type pineconeRequest struct {
	Vectors []struct {
		ID       string         `json:"id"`
		Values   []float32      `json:"values"`
		Metadata map[string]any `json:"metadata"`
	} `json:"vectors"`
	IDs       []string  `json:"ids"`
	DeleteAll bool      `json:"deleteAll"`
	Vector    []float32 `json:"vector"`
	TopK      int       `json:"topK"`
	Namespace string    `json:"namespace"`
}

// pineconeNotFound is the answer for a namespace that does not exist.
const pineconeNotFound = `{"code": 5, "message": "Namespace not found", "details": []}`

// StartPinecone starts a server with the shapes of Pinecone's published API over index, consistent at once, and returns its address.
func StartPinecone(t testing.TB, index *Index) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in pineconeRequest
		if r.Header.Get("Api-Key") != Key || r.Header.Get("X-Pinecone-Api-Version") == "" {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPost && json.NewDecoder(r.Body).Decode(&in) != nil {
			http.Error(w, `{"code": 3}`, http.StatusBadRequest)
			return
		}
		var answer any
		switch r.Method + " " + r.URL.Path {
		case "POST /vectors/upsert":
			index.Create(in.Namespace)
			for _, v := range in.Vectors {
				if v.Metadata != nil {
					t.Error("metadata is sent")
				}
				index.Put(in.Namespace, v.ID, v.Values)
			}
			answer = map[string]any{"upsertedCount": len(in.Vectors)}
		case "GET /vectors/fetch":
			namespace, vectors := r.URL.Query().Get("namespace"), map[string]any{}
			for _, id := range index.Find(namespace, r.URL.Query()["ids"]) {
				vectors[id] = map[string]any{"id": id, "values": []float32{1, 2}}
			}
			answer = map[string]any{"vectors": vectors, "namespace": namespace, "usage": map[string]any{"readUnits": 1}}
		case "POST /query":
			matches := []any{}
			for _, m := range index.Search(in.Namespace, in.Vector, in.TopK) {
				matches = append(matches, map[string]any{"id": m.ID, "score": m.Score, "values": []float32{}})
			}
			answer = map[string]any{"matches": matches, "namespace": in.Namespace, "usage": map[string]any{"readUnits": 5}}
		case "POST /vectors/delete":
			if !index.Has(in.Namespace) {
				http.Error(w, pineconeNotFound, http.StatusNotFound)
				return
			}
			index.Delete(in.Namespace, in.IDs)
			if in.DeleteAll {
				index.Drop(in.Namespace)
			}
			answer = map[string]any{}
		default:
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}
