package qdrant_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"stoa/agentsvc/vectorstore"
	store "stoa/agentsvc/vectorstore/qdrant"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/agentsvc/vectorstore/vectorstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(o remote.Options) (vectorstore.Store, error) { return store.New(o) }

// TestStore runs the suite against a server in this process: there is no program of a real one for tests.
func TestStore(t *testing.T) {
	t.Parallel()
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		s, err := newStore(remotetest.NewOptions(t, remotetest.StartQdrant(t)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestConnection(t *testing.T) {
	t.Parallel()
	remotetest.RunConnectionSuite(t, newStore)
}

// TestErrors checks the errors for a wrong key and for vectors of another length, which are not tried again.
func TestErrors(t *testing.T) {
	t.Parallel()
	o := remotetest.NewOptions(t, remotetest.StartQdrant(t))
	put := func(o remote.Options, vector ...float32) string {
		s, err := newStore(o)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		err = s.UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: uuid.NewString(), Vector: vector}})
		if _, rejected := errors.AsType[*vectorstore.RejectedError](err); err != nil && !rejected {
			t.Errorf("%v is no RejectedError", err)
		}
		return fmt.Sprint(err)
	}
	wrong := o
	wrong.APIKey = "wrong"
	got := []string{put(o, 1, 2), put(o, 1, 2, 3), put(wrong, 1, 2)}
	want := []string{"<nil>",
		"put documents: the vector store (qdrant) refused the request (gRPC code InvalidArgument): check that its version is supported, and that its collection has vectors of the embedder's length",
		"put documents: the vector store (qdrant) refused the API key: check api_key"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTLS checks that a connection is encrypted with enable_tls, to a server whose certificate is trusted only.
func TestTLS(t *testing.T) {
	t.Parallel()
	l := remotetest.Listen(t)
	certificate, o := remotetest.NewTLSOptions(t, l.Addr().String())
	remotetest.ServeQdrant(t, l, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
	plain, distrustful := remotetest.NewOptions(t, l.Addr().String()), remotetest.NewOptions(t, l.Addr().String())
	distrustful.EnableTLS = true
	for name, c := range map[string]struct {
		options remote.Options
		works   bool
	}{"trusted": {o, true}, "not encrypted": {plain, false}, "not trusted": {distrustful, false}} {
		s, err := newStore(c.options)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: 1})
		if (err == nil) != c.works {
			t.Errorf("%s: %v", name, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRecovery checks that a store finds its server again when that comes back.
func TestRecovery(t *testing.T) {
	t.Parallel()
	l := remotetest.Listen(t)
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := newStore(remotetest.NewOptions(t, address))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	put := func() error {
		return s.UpsertDocuments(t.Context(), "c", []vectorstore.Document{{ID: uuid.NewString(), Vector: []float32{1, 2}}})
	}
	err = put()
	if _, unavailable := errors.AsType[*vectorstore.UnavailableError](err); !unavailable {
		t.Fatal(err)
	}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	remotetest.ServeQdrant(t, l)
	deadline := time.Now().Add(30 * time.Second)
	for err = put(); err != nil && time.Now().Before(deadline); err = put() {
		if _, unavailable := errors.AsType[*vectorstore.UnavailableError](err); !unavailable {
			break
		}
	}
	if err != nil {
		t.Error("the store does not find its server again:", err)
	}
}
