package milvus_test

import (
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

// TestStore runs the suite against a server in this process: there is no program of a real one for tests.
func TestStore(t *testing.T) {
	t.Parallel()
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		return milvus.New(remotetest.NewOptions(t, remotetest.StartMilvus(t, remotetest.NewIndex())))
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
