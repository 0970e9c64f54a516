package qdrant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/qdrant/go-client/qdrant"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"stoa/agentsvc/capacity"
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
		s, err := newStore(remotetest.NewOptions(t, remotetest.StartQdrant(t, remotetest.NewIndex())))
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
	o := remotetest.NewOptions(t, remotetest.StartQdrant(t, remotetest.NewIndex()))
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
	remotetest.ServeQdrant(t, l, remotetest.NewIndex(), grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
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
	remotetest.ServeQdrant(t, l, remotetest.NewIndex())
	deadline := time.Now().Add(time.Minute)
	for err = put(); err != nil && time.Now().Before(deadline); err = put() {
		if _, unavailable := errors.AsType[*vectorstore.UnavailableError](err); !unavailable {
			break
		}
	}
	if err != nil {
		t.Error("the store does not find its server again:", err)
	}
}

// floodingPoints answers each query with its points, however many are asked for.
type floodingPoints struct {
	qdrant.UnimplementedPointsServer
	points []*qdrant.ScoredPoint
}

func (f floodingPoints) Query(context.Context, *qdrant.QueryPoints) (*qdrant.QueryResponse, error) {
	return &qdrant.QueryResponse{Result: f.points}, nil
}

// TestFlood checks that an answer with more points than were asked for is refused, and one with more bytes before it is
// read.
func TestFlood(t *testing.T) {
	t.Parallel()
	const limit = 10
	for n, want := range map[int]string{limit: "", limit + 1: "more documents than it was asked for", 100_000: "more than the 21504 bytes"} {
		l := remotetest.Listen(t)
		g := grpc.NewServer()
		qdrant.RegisterPointsServer(g, floodingPoints{points: slices.Repeat([]*qdrant.ScoredPoint{{Id: qdrant.NewID("x"), Score: 1}}, n)})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = g.Serve(l)
		}()
		var reserved atomic.Int64
		o := remotetest.NewOptions(t, l.Addr().String())
		o.Tenant, o.Memory = "acme", capacity.NewPool(64<<20, func(n int64) { reserved.Store(n) })
		s, err := newStore(o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Search(t.Context(), "c", vectorstore.Query{Vector: []float32{1}, Limit: limit})
		_, rejected := errors.AsType[*vectorstore.RejectedError](err)
		if want == "" && (err != nil || len(got) != n) || want != "" && (!rejected || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d points for %d: %d are used, %v", n, limit, len(got), err)
		}
		if err := s.Close(); err != nil || reserved.Load() != 0 {
			t.Errorf("%d bytes remain reserved, %v", reserved.Load(), err)
		}
		g.Stop()
		<-ended
	}
}
