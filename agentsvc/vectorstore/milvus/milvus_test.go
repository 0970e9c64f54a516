package milvus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"stoa/agentsvc/vectorstore"
	"stoa/agentsvc/vectorstore/milvus"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/agentsvc/vectorstore/vectorstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is the body of any request.
type request struct {
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

// answerWith returns an answer in the API's form. Errors have the HTTP status 200, too.
func answerWith(code int, data any) map[string]any {
	if code != 0 {
		return map[string]any{"code": code, "message": "an upstream text"}
	}
	return map[string]any{"code": 0, "data": data}
}

// startServer starts a server with the shapes of Milvus' published API and returns its address. Its searches are
// consistent only if they ask for it.
func startServer(t *testing.T) string {
	index := remotetest.NewIndex()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in request
		path, isV2 := strings.CutPrefix(r.URL.Path, "/v2/vectordb")
		if !isV2 || r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil {
			http.NotFound(w, r)
			return
		}
		answer := answerWith(1800, nil)
		if r.Header.Get("Authorization") == "Bearer "+remotetest.Key {
			answer = handle(index, path, in)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// handle answers one request.
func handle(index *remotetest.Index, path string, in request) map[string]any {
	switch {
	case path == "/collections/create":
		if in.MetricType != "COSINE" || in.IDType != "VarChar" || in.Dimension < 2 || in.Params["max_length"] == nil || in.Params["consistencyLevel"] != "Strong" {
			return answerWith(1100, nil)
		}
		index.Create(in.Collection)
		return answerWith(0, map[string]any{})
	case path == "/collections/drop":
		index.Drop(in.Collection)
		return answerWith(0, map[string]any{})
	case !index.Has(in.Collection):
		return answerWith(100, nil)
	}
	switch path {
	case "/entities/upsert":
		var rows []struct {
			ID     string
			Vector []float32
		}
		if json.Unmarshal(in.Data, &rows) != nil {
			return answerWith(1801, nil)
		}
		for _, row := range rows {
			index.Put(in.Collection, row.ID, row.Vector)
		}
		return answerWith(0, map[string]any{"upsertCount": len(rows)})
	case "/entities/query":
		found := []any{}
		for _, id := range index.Find(in.Collection, readFilter(in.Filter)) {
			found = append(found, map[string]any{"id": id})
		}
		return answerWith(0, found)
	case "/entities/search":
		var vectors [][]float32
		if json.Unmarshal(in.Data, &vectors) != nil || len(vectors) != 1 || in.ConsistencyLevel != "Strong" {
			return answerWith(1801, nil)
		}
		found := []any{}
		for _, m := range index.Search(in.Collection, vectors[0], in.Limit) {
			found = append(found, map[string]any{"id": m.ID, "distance": m.Score})
		}
		return answerWith(0, found)
	case "/entities/delete":
		index.Delete(in.Collection, readFilter(in.Filter))
		return answerWith(0, map[string]any{})
	}
	return answerWith(1100, nil)
}

// readFilter returns the ids of an expression like `id in ["a", "b"]`.
func readFilter(filter string) (ids []string) {
	list, _ := strings.CutPrefix(filter, "id in ")
	_ = json.Unmarshal([]byte(list), &ids)
	return ids
}

// TestStore runs the suite against a server in this process: there is no program of a real one for tests.
func TestStore(t *testing.T) {
	t.Parallel()
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		return milvus.New(remotetest.NewOptions(t, startServer(t)))
	})
}

func TestConnection(t *testing.T) {
	t.Parallel()
	remotetest.RunConnectionSuite(t, func(o remote.Options) (vectorstore.Store, error) { return milvus.New(o), nil })
}

// TestCodes checks the errors for the codes of answers, and which of them are tried again.
func TestCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		requests    int
		unavailable bool
		message     string
	}{
		`{"code": 8, "message": "a secret"}`:     {3, true, "it answered with the code 8"},
		`{"code": 101, "message": "a secret"}`:   {3, true, "it answered with the code 101"},
		`{"code": 1800, "message": "a secret"}`:  {1, false, "refused the API key"},
		`{"code": 65535, "message": "a secret"}`: {1, false, "code 65535"},
		`{"message": "a secret"}`:                {1, false, "invalid response"},
		`<html>a secret</html>`:                  {1, false, "invalid response"},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			requests := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				requests++
				_, _ = fmt.Fprint(w, code)
			}))
			t.Cleanup(server.Close)
			_, err := milvus.New(remotetest.NewOptions(t, server.Listener.Addr().String())).Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: 1})
			_, unavailable := errors.AsType[*vectorstore.UnavailableError](err)
			_, rejected := errors.AsType[*vectorstore.RejectedError](err)
			if unavailable != want.unavailable || rejected == unavailable || !strings.Contains(err.Error(), want.message) || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error is %v", err)
			}
			if requests != want.requests {
				t.Errorf("%d requests, want %d", requests, want.requests)
			}
		})
	}
}
