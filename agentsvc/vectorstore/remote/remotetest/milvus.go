package remotetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// milvusRequest is the body of any request.
type milvusRequest struct {
	Collection       string          `json:"collectionName"`
	Dimension        int             `json:"dimension"`
	MetricType       string          `json:"metricType"`
	IDType           string          `json:"idType"`
	Params           map[string]any  `json:"params"`
	Data             json.RawMessage `json:"data"`
	Filter           string          `json:"filter"`
	Limit            int             `json:"limit"`
	ConsistencyLevel string          `json:"consistencyLevel"`
}

// milvusAnswer returns an answer in the API's form. Errors have the HTTP status 200, too.
func milvusAnswer(code int, data any) map[string]any {
	if code != 0 {
		return map[string]any{"code": code, "message": "an upstream text"}
	}
	return map[string]any{"code": 0, "data": data}
}

// StartMilvus starts a server with the shapes of Milvus' published API over index and returns its address. Its searches are
// consistent only if they ask for it.
func StartMilvus(t testing.TB, index *Index) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in milvusRequest
		path, isV2 := strings.CutPrefix(r.URL.Path, "/v2/vectordb")
		if !isV2 || r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil {
			http.NotFound(w, r)
			return
		}
		answer := milvusAnswer(1800, nil)
		if r.Header.Get("Authorization") == "Bearer "+Key {
			answer = handleMilvus(index, path, in)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// handleMilvus answers one request.
func handleMilvus(index *Index, path string, in milvusRequest) map[string]any {
	switch {
	case path == "/collections/create":
		if in.MetricType != "COSINE" || in.IDType != "VarChar" || in.Dimension < 2 || in.Params["max_length"] == nil || in.Params["consistencyLevel"] != "Strong" {
			return milvusAnswer(1100, nil)
		}
		index.Create(in.Collection)
		return milvusAnswer(0, map[string]any{})
	case path == "/collections/drop":
		index.Drop(in.Collection)
		return milvusAnswer(0, map[string]any{})
	case !index.Has(in.Collection):
		return milvusAnswer(100, nil)
	}
	switch path {
	case "/entities/upsert":
		var rows []struct {
			ID     string
			Vector []float32
		}
		if json.Unmarshal(in.Data, &rows) != nil {
			return milvusAnswer(1801, nil)
		}
		for _, row := range rows {
			index.Put(in.Collection, row.ID, row.Vector)
		}
		return milvusAnswer(0, map[string]any{"upsertCount": len(rows)})
	case "/entities/query":
		found := []any{}
		for _, id := range index.Find(in.Collection, readMilvusFilter(in.Filter)) {
			found = append(found, map[string]any{"id": id})
		}
		return milvusAnswer(0, found)
	case "/entities/search":
		var vectors [][]float32
		if json.Unmarshal(in.Data, &vectors) != nil || len(vectors) != 1 || in.ConsistencyLevel != "Strong" {
			return milvusAnswer(1801, nil)
		}
		found := []any{}
		for _, m := range index.Search(in.Collection, vectors[0], in.Limit) {
			found = append(found, map[string]any{"id": m.ID, "distance": m.Score})
		}
		return milvusAnswer(0, found)
	case "/entities/delete":
		index.Delete(in.Collection, readMilvusFilter(in.Filter))
		return milvusAnswer(0, map[string]any{})
	}
	return milvusAnswer(1100, nil)
}

// readMilvusFilter returns the ids of an expression like `id in ["a", "b"]`.
func readMilvusFilter(filter string) (ids []string) {
	list, _ := strings.CutPrefix(filter, "id in ")
	_ = json.Unmarshal([]byte(list), &ids)
	return ids
}
