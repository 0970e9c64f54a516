package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
)

// VectorFinder finds memories by their meaning. Its index is brought up to the rows at each question: memories that have no
// vector of the embedder's model get one, which is kept with the row; those that were erased are dropped.
type VectorFinder struct {
	store      *Store
	embedder   embedder.Embedder
	index      vectorstore.Store
	maxVectors int // vectors of all owners that may be indexed at once, 0 = any

	mu      sync.Mutex
	indexes map[agentsvc.Owner]*ownerIndex
}

// ownerIndex is one owner's part of the index. Who has put a token into busy works on it alone; the rest is written under
// the vector's lock.
type ownerIndex struct {
	token        chan struct{}
	lastUsed     time.Time
	indexed      int
	indexedUntil int64 // memories from before are indexed
}

const (
	// MaxIndexedVectors is how many vectors an index in memory holds before those of the owners who have asked for nothing
	// the longest time are dropped. Their rows keep them.
	MaxIndexedVectors = 20_000
	// maxBatchVectors is how many memories are given vectors at once; each round is kept.
	maxBatchVectors = 100
	// writeOverlap covers memories that were written just before others and could be seen only after them.
	writeOverlap = time.Minute
	// minSimilarity is the least score of a memory that is recalled without being asked for.
	minSimilarity = 0.2
)

// NewVectorFinder returns a finder that makes vectors with e and looks them up in index, which holds at most bound of them,
// any number if bound is 0.
func NewVectorFinder(s *Store, e embedder.Embedder, index vectorstore.Store, bound int) *VectorFinder {
	return &VectorFinder{store: s, embedder: e, index: index, maxVectors: bound, indexes: map[agentsvc.Owner]*ownerIndex{}}
}

// FindMemories implements [Finder].
func (v *VectorFinder) FindMemories(ctx context.Context, owner agentsvc.Owner, question string, limit int, onlyRelevant bool) ([]Memory, error) {
	if question = normalizeText(question); question == "" {
		return nil, nil
	}
	idx, err := v.acquireIndex(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer idx.releaseToken()
	if err := v.refreshIndex(ctx, owner, idx); err != nil {
		return nil, err
	}
	if idx.indexed == 0 {
		v.removeIndex(owner)
		return nil, nil
	}
	vectors, err := v.embedder.Embed(ctx, embedder.Query, []string{question})
	if err != nil {
		return nil, err
	}
	q := vectorstore.Query{Vector: vectors[0], Limit: limit, MinScore: -1}
	if onlyRelevant {
		q.MinScore = minSimilarity
	}
	matches, err := v.index.Search(ctx, v.collectionName(owner), q)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(matches))
	for i, m := range matches {
		ids[i] = m.ID
	}
	return v.store.loadMemories(ctx, owner, ids)
}

// ForgetOwner implements [Finder].
func (v *VectorFinder) ForgetOwner(ctx context.Context, owner agentsvc.Owner) error {
	idx, err := v.acquireIndex(ctx, owner)
	if err != nil {
		return err
	}
	defer idx.releaseToken()
	return v.dropIndex(ctx, owner)
}

// acquireIndex returns an owner's part of the index. Its caller works on it alone, until leave.
func (v *VectorFinder) acquireIndex(ctx context.Context, owner agentsvc.Owner) (*ownerIndex, error) {
	for {
		v.mu.Lock()
		idx := v.indexes[owner]
		if idx == nil {
			idx = &ownerIndex{token: make(chan struct{}, 1)}
			v.indexes[owner] = idx
		}
		idx.lastUsed = time.Now()
		v.mu.Unlock()
		select {
		case idx.token <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		v.mu.Lock()
		isCurrent := v.indexes[owner] == idx
		v.mu.Unlock()
		if isCurrent {
			return idx, nil
		}
		idx.releaseToken() // it was dropped meanwhile
	}
}

func (idx *ownerIndex) releaseToken() { <-idx.token }

// dropIndex removes an owner's part of the index. The caller works on it alone.
func (v *VectorFinder) dropIndex(ctx context.Context, owner agentsvc.Owner) error {
	v.removeIndex(owner)
	return v.index.DropCollection(ctx, v.collectionName(owner))
}

func (v *VectorFinder) removeIndex(owner agentsvc.Owner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.indexes, owner)
}

// setIndexed notes what is indexed of an owner.
func (v *VectorFinder) setIndexed(idx *ownerIndex, n int, since int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	idx.indexed, idx.indexedUntil = n, since
}

// evictIndexes drops parts of the index until it is within its bound: first those of owners who have not asked for the
// longest time, and none that is in use.
func (v *VectorFinder) evictIndexes(ctx context.Context) error {
	for {
		owner, idx := v.acquireEvictable()
		if idx == nil {
			return nil
		}
		err := v.dropIndex(ctx, owner)
		idx.releaseToken()
		if err != nil {
			return err
		}
	}
}

// acquireEvictable returns the part of the index to drop next, for its caller to work on alone, or nil.
func (v *VectorFinder) acquireEvictable() (oldest agentsvc.Owner, found *ownerIndex) {
	v.mu.Lock()
	defer v.mu.Unlock()
	total := 0
	for owner, idx := range v.indexes {
		total += idx.indexed
		if len(idx.token) == 0 && (found == nil || idx.lastUsed.Before(found.lastUsed)) {
			oldest, found = owner, idx
		}
	}
	if v.maxVectors == 0 || total <= v.maxVectors || found == nil {
		return oldest, nil
	}
	select {
	case found.token <- struct{}{}:
		return oldest, found
	default:
		return oldest, nil
	}
}

// refreshIndex brings an owner's part of the index up to the rows. The caller holds its token.
func (v *VectorFinder) refreshIndex(ctx context.Context, owner agentsvc.Owner, idx *ownerIndex) error {
	ids, total, last, err := v.store.listIDsSince(ctx, owner, idx.indexedUntil-writeOverlap.Microseconds())
	if err != nil {
		return err
	}
	missing, err := v.index.FindMissing(ctx, v.collectionName(owner), ids)
	if err != nil {
		return err
	}
	if indexed := idx.indexed + len(missing); idx.indexedUntil > 0 && indexed > total { // some are gone
		if err := v.index.DropCollection(ctx, v.collectionName(owner)); err != nil {
			return err
		}
		v.setIndexed(idx, 0, 0)
		if ids, total, last, err = v.store.listIDsSince(ctx, owner, 0); err != nil {
			return err
		}
		missing = ids
	}
	for round := range slices.Chunk(missing, maxBatchVectors) {
		if err := v.indexMemories(ctx, owner, round); err != nil {
			return err
		}
	}
	v.setIndexed(idx, total, max(last, 1))
	return v.evictIndexes(ctx)
}

// indexMemories indexes memories.
func (v *VectorFinder) indexMemories(ctx context.Context, owner agentsvc.Owner, ids []string) error {
	rows, err := v.store.loadVectors(ctx, owner, ids, v.embedder.Model())
	if err != nil {
		return err
	}
	var texts []string
	var unembedded []int
	for i, r := range rows {
		if r.vector == nil {
			unembedded, texts = append(unembedded, i), append(texts, r.text)
		}
	}
	vectors, err := v.embedder.Embed(ctx, embedder.Document, texts)
	if err != nil {
		return err
	}
	for j, i := range unembedded {
		rows[i].vector = vectors[j]
	}
	if err := v.store.saveVectors(ctx, rows, unembedded, v.embedder.Model()); err != nil {
		return err
	}
	docs := make([]vectorstore.Document, len(rows))
	for i, r := range rows {
		docs[i] = vectorstore.Document{ID: r.id, Vector: r.vector}
	}
	return v.index.UpsertDocuments(ctx, v.collectionName(owner), docs)
}

// collectionName names an owner's vectors of the embedder's model. It begins with the tenant.
func (v *VectorFinder) collectionName(owner agentsvc.Owner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", v.embedder.Model(), owner.Issuer, owner.Subject))
	return v.store.tenant + "-memory-" + hex.EncodeToString(sum[:16])
}
