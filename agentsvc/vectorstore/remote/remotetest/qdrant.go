package remotetest

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/qdrant/go-client/qdrant"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"stoa/agentsvc/egress"
)

// qdrantServer is a Qdrant server on the official stubs, as far as a store uses it. It refuses what the real one refuses: ids
// that are no UUIDs, collections that do not exist or exist already, vectors of another length; and writes that do not
// wait, after which a search would miss them.
type qdrantServer struct {
	index *Index
	// mu guards sizes, the lengths of the collections' vectors.
	mu    sync.Mutex
	sizes map[string]uint64
}

// qdrantCollections and qdrantPoints are the server's two services.
type (
	qdrantCollections struct {
		qdrant.UnimplementedCollectionsServer
		*qdrantServer
	}
	qdrantPoints struct {
		qdrant.UnimplementedPointsServer
		*qdrantServer
	}
)

// StartQdrant starts a server over index and returns its address.
func StartQdrant(t testing.TB, index *Index) string {
	l := Listen(t)
	ServeQdrant(t, l, index)
	return l.Addr().String()
}

// ServeQdrant serves index on l until the end of the test.
func ServeQdrant(t testing.TB, l net.Listener, index *Index, options ...grpc.ServerOption) {
	s := &qdrantServer{index: index, sizes: map[string]uint64{}}
	g := grpc.NewServer(append(options, grpc.UnaryInterceptor(func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		if !slices.Equal(md.Get("api-key"), []string{Key}) {
			return nil, status.Error(codes.Unauthenticated, "an upstream text")
		}
		// The library adds its own name and version to ours.
		if agent := md.Get("user-agent"); len(agent) != 1 || !strings.HasPrefix(agent[0], egress.UserAgent+" ") {
			t.Errorf("the client's User-Agent is %q", agent)
		}
		return next(ctx, in)
	}))...)
	qdrant.RegisterCollectionsServer(g, qdrantCollections{qdrantServer: s})
	qdrant.RegisterPointsServer(g, qdrantPoints{qdrantServer: s})
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
func (s *qdrantServer) checkRequest(collection string, vector []float32, ids ...*qdrant.PointId) error {
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

func (c qdrantCollections) Create(_ context.Context, in *qdrant.CreateCollection) (*qdrant.CollectionOperationResponse, error) {
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

func (c qdrantCollections) CollectionExists(_ context.Context, in *qdrant.CollectionExistsRequest) (*qdrant.CollectionExistsResponse, error) {
	return &qdrant.CollectionExistsResponse{Result: &qdrant.CollectionExists{Exists: c.index.Has(in.GetCollectionName())}}, nil
}

func (c qdrantCollections) Delete(_ context.Context, in *qdrant.DeleteCollection) (*qdrant.CollectionOperationResponse, error) {
	return &qdrant.CollectionOperationResponse{Result: c.index.Drop(in.GetCollectionName())}, nil
}

func (p qdrantPoints) Upsert(_ context.Context, in *qdrant.UpsertPoints) (*qdrant.PointsOperationResponse, error) {
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

func (p qdrantPoints) Get(_ context.Context, in *qdrant.GetPoints) (*qdrant.GetResponse, error) {
	if err := p.checkRequest(in.GetCollectionName(), nil, in.GetIds()...); err != nil {
		return nil, err
	}
	answer := &qdrant.GetResponse{}
	for _, id := range p.index.Find(in.GetCollectionName(), readQdrantIDs(in.GetIds())) {
		answer.Result = append(answer.Result, &qdrant.RetrievedPoint{Id: qdrant.NewID(id)})
	}
	return answer, nil
}

func (p qdrantPoints) Query(_ context.Context, in *qdrant.QueryPoints) (*qdrant.QueryResponse, error) {
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

func (p qdrantPoints) Delete(_ context.Context, in *qdrant.DeletePoints) (*qdrant.PointsOperationResponse, error) {
	ids := in.GetPoints().GetPoints().GetIds()
	if err := p.checkRequest(in.GetCollectionName(), nil, ids...); err != nil {
		return nil, err
	}
	if !in.GetWait() {
		return nil, status.Error(codes.InvalidArgument, "a write that is not waited for")
	}
	p.index.Delete(in.GetCollectionName(), readQdrantIDs(ids))
	return &qdrant.PointsOperationResponse{}, nil
}

// readQdrantIDs returns the ids of points.
func readQdrantIDs(ids []*qdrant.PointId) []string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.GetUuid()
	}
	return texts
}
