package qdrant_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/qdrant/go-client/qdrant"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"stoa/agentsvc/vectorstore"
	store "stoa/agentsvc/vectorstore/qdrant"
	"stoa/agentsvc/vectorstore/remote"
	"stoa/agentsvc/vectorstore/remote/remotetest"
	"stoa/agentsvc/vectorstore/vectorstoretest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a Qdrant server on the official stubs, as far as a store uses it. It refuses what the real one refuses: ids
// that are no UUIDs, collections that do not exist or exist already, vectors of another length; and writes that do not
// wait, after which a search would miss them.
type server struct {
	index *remotetest.Index
	// mu guards sizes, the lengths of the collections' vectors.
	mu    sync.Mutex
	sizes map[string]uint64
}

// collections and points are the server's two services.
type (
	collections struct {
		qdrant.UnimplementedCollectionsServer
		*server
	}
	points struct {
		qdrant.UnimplementedPointsServer
		*server
	}
)

// startServer starts a server and returns its address.
func startServer(t *testing.T) string {
	l := remotetest.Listen(t)
	serve(t, l)
	return l.Addr().String()
}

// serve serves on l until the end of the test.
func serve(t *testing.T, l net.Listener, options ...grpc.ServerOption) {
	s := &server{index: remotetest.NewIndex(), sizes: map[string]uint64{}}
	g := grpc.NewServer(append(options, grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if !slices.Equal(md.Get("api-key"), []string{remotetest.Key}) {
			return nil, status.Error(codes.Unauthenticated, "an upstream text")
		}
		return next(ctx, in)
	}))...)
	qdrant.RegisterCollectionsServer(g, collections{server: s})
	qdrant.RegisterPointsServer(g, points{server: s})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-ended
	})
}

// checkRequest returns the error for a collection that does not exist, a vector of another length, or a bad id.
func (s *server) checkRequest(collection string, vector []float32, ids ...*qdrant.PointId) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.index.Has(collection) {
		return status.Errorf(codes.NotFound, "Not found: Collection `%s` doesn't exist!", collection)
	}
	if vector != nil && uint64(len(vector)) != s.sizes[collection] {
		return status.Errorf(codes.InvalidArgument, "Wrong input: Vector dimension error: expected dim: %d", s.sizes[collection])
	}
	for _, id := range ids {
		if uuid.Validate(id.GetUuid()) != nil {
			return status.Error(codes.InvalidArgument, "Unable to parse UUID")
		}
	}
	return nil
}

func (c collections) Create(_ context.Context, in *qdrant.CreateCollection) (*qdrant.CollectionOperationResponse, error) {
	params := in.GetVectorsConfig().GetParams()
	if params.GetDistance() != qdrant.Distance_Cosine || params.GetSize() == 0 {
		return nil, status.Error(codes.InvalidArgument, "not cosine")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.index.Create(in.GetCollectionName()) {
		return nil, status.Errorf(codes.AlreadyExists, "Wrong input: Collection `%s` already exists!", in.GetCollectionName())
	}
	c.sizes[in.GetCollectionName()] = params.GetSize()
	return &qdrant.CollectionOperationResponse{Result: true}, nil
}

func (c collections) CollectionExists(_ context.Context, in *qdrant.CollectionExistsRequest) (*qdrant.CollectionExistsResponse, error) {
	return &qdrant.CollectionExistsResponse{Result: &qdrant.CollectionExists{Exists: c.index.Has(in.GetCollectionName())}}, nil
}

func (c collections) Delete(_ context.Context, in *qdrant.DeleteCollection) (*qdrant.CollectionOperationResponse, error) {
	return &qdrant.CollectionOperationResponse{Result: c.index.Drop(in.GetCollectionName())}, nil
}

func (p points) Upsert(_ context.Context, in *qdrant.UpsertPoints) (*qdrant.PointsOperationResponse, error) {
	for _, x := range in.GetPoints() {
		vector := x.GetVectors().GetVector().GetDense().GetData()
		if err := p.checkRequest(in.GetCollectionName(), vector, x.GetId()); err != nil {
			return nil, err
		}
		if !in.GetWait() || len(x.GetPayload()) > 0 {
			return nil, status.Error(codes.InvalidArgument, "a write that is not waited for, or a payload")
		}
		p.index.Put(in.GetCollectionName(), x.GetId().GetUuid(), vector)
	}
	return &qdrant.PointsOperationResponse{}, nil
}

func (p points) Get(_ context.Context, in *qdrant.GetPoints) (*qdrant.GetResponse, error) {
	if err := p.checkRequest(in.GetCollectionName(), nil, in.GetIds()...); err != nil {
		return nil, err
	}
	answer := &qdrant.GetResponse{}
	for _, id := range p.index.Find(in.GetCollectionName(), readIDs(in.GetIds())) {
		answer.Result = append(answer.Result, &qdrant.RetrievedPoint{Id: qdrant.NewID(id)})
	}
	return answer, nil
}

func (p points) Query(_ context.Context, in *qdrant.QueryPoints) (*qdrant.QueryResponse, error) {
	vector := in.GetQuery().GetNearest().GetDense().GetData()
	if err := p.checkRequest(in.GetCollectionName(), vector); err != nil {
		return nil, err
	}
	answer := &qdrant.QueryResponse{}
	for _, m := range p.index.Search(in.GetCollectionName(), vector, int(in.GetLimit())) {
		answer.Result = append(answer.Result, &qdrant.ScoredPoint{Id: qdrant.NewID(m.ID), Score: m.Score})
	}
	return answer, nil
}

func (p points) Delete(_ context.Context, in *qdrant.DeletePoints) (*qdrant.PointsOperationResponse, error) {
	ids := in.GetPoints().GetPoints().GetIds()
	if err := p.checkRequest(in.GetCollectionName(), nil, ids...); err != nil {
		return nil, err
	}
	if !in.GetWait() {
		return nil, status.Error(codes.InvalidArgument, "a write that is not waited for")
	}
	p.index.Delete(in.GetCollectionName(), readIDs(ids))
	return &qdrant.PointsOperationResponse{}, nil
}

// readIDs returns the ids of points.
func readIDs(ids []*qdrant.PointId) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.GetUuid()
	}
	return texts
}

func newStore(o remote.Options) (vectorstore.Store, error) { return store.New(o) }

// TestStore runs the suite against a server in this process: there is no program of a real one for tests.
func TestStore(t *testing.T) {
	t.Parallel()
	vectorstoretest.RunSuite(t, func(t *testing.T) vectorstore.Store {
		s, err := newStore(remotetest.NewOptions(t, startServer(t)))
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
	o := remotetest.NewOptions(t, startServer(t))
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
	serve(t, l, grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))
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
	serve(t, l)
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
