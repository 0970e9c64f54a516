package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"stoa/agentsvc"
	"stoa/agentsvc/embedder"
	"stoa/agentsvc/vectorstore"
)

// VectorFinder finds memories by their meaning. Each question first brings the owner's part of the index up to date:
// memories without a vector of the embedder's model get one, which is stored with the row, and erased ones are removed.
type VectorFinder struct {
	store    *Store
	embedder embedder.Embedder
	index    vectorstore.Store
	// maxVectors bounds the vectors in the index, of all owners together; 0 means no bound.
	maxVectors int

	// mu guards indexes and the fields lastUsed, indexed and indexedUntil of its values.
	mu      sync.Mutex
	indexes map[agentsvc.Owner]*ownerIndex
}

// ownerIndex is the state of one owner's part of the index. The goroutine that has sent into token uses that part
// exclusively.
type ownerIndex struct {
	// token is a lock with one slot, which a caller can stop waiting for.
	token    chan struct{}
	lastUsed time.Time
	// indexed is the number of vectors.
	indexed int
	// indexedUntil is the time, in Unix microseconds, up to which memories are indexed; 0 before the first refresh.
	indexedUntil int64
}

const (
	// MaxIndexedVectors bounds an index in memory. Beyond it the parts of the owners that were idle longest are
	// dropped; their rows keep the vectors.
	MaxIndexedVectors = 20_000
	// maxBatchVectors is how many memories get vectors in one request. Each batch is stored before the next one.
	maxBatchVectors = 100
	// writeOverlap is how far a refresh looks back: a transaction may commit a memory with an earlier time than one
	// that is indexed already.
	writeOverlap = time.Minute
	// minSimilarity is the least score of a memory in the background of a prompt.
	minSimilarity = 0.2
)

// NewVectorFinder returns a finder that computes vectors with e and searches them in index, which gets at most bound of
// them; 0 means no bound.
func NewVectorFinder(s *Store, e embedder.Embedder, index vectorstore.Store, bound int) *VectorFinder {
	return &VectorFinder{store: s, embedder: e, index: index, maxVectors: bound, indexes: map[agentsvc.Owner]*ownerIndex{}}
}

// FindMemories implements [Finder]. Calls for one owner run one after the other.
func (v *VectorFinder) FindMemories(ctx context.Context, scope agentsvc.RunScope, question string, limit int, onlyRelevant bool) ([]Memory, error) {
	if question = normalizeText(question); question == "" {
		return nil, nil
	}
	owner, payer := scope.Session.Owner, scope.Payer()
	idx, err := v.acquireIndex(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer idx.releaseToken()
	if err := v.refreshIndex(ctx, payer, owner, idx); err != nil {
		return nil, err
	}
	// The owner has no memories. Keeping an empty part would let the map grow with every user that asks.
	if idx.indexed == 0 {
		v.removeIndex(owner)
		return nil, nil
	}
	vectors, err := v.embedder.Embed(ctx, payer, embedder.Query, []string{question})
	if err != nil {
		return nil, err
	}
	// A MinScore of -1 excludes nothing: cosine similarity is at least -1.
	q := vectorstore.Query{Vector: vectors[0], Limit: limit, MinScore: -1}
	if onlyRelevant {
		q.MinScore = minSimilarity
	}
	matches, err := v.index.Search(ctx, v.collectionName(owner), q)
	if err != nil {
		return nil, err
	}
	// The index has vectors only. The texts come from the rows, so an erased memory cannot be found by a stale index.
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

// acquireIndex returns an owner's part of the index for exclusive use. The caller must call releaseToken.
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
		// It was dropped while this call waited: take the new one.
		idx.releaseToken()
	}
}

// releaseToken ends the exclusive use.
func (idx *ownerIndex) releaseToken() { <-idx.token }

// dropIndex removes an owner's part of the index. The caller holds its token.
func (v *VectorFinder) dropIndex(ctx context.Context, owner agentsvc.Owner) error {
	v.removeIndex(owner)
	return v.index.DropCollection(ctx, v.collectionName(owner))
}

// removeIndex forgets the state of an owner's part. Waiting callers of acquireIndex notice and start again.
func (v *VectorFinder) removeIndex(owner agentsvc.Owner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.indexes, owner)
}

// setIndexed records how many vectors of an owner are indexed, and up to which time.
func (v *VectorFinder) setIndexed(idx *ownerIndex, n int, since int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	idx.indexed, idx.indexedUntil = n, since
}

// evictIndexes drops parts of the index until it is within maxVectors: those of the longest idle owners first, and none
// that is in use.
func (v *VectorFinder) evictIndexes(ctx context.Context) error {
	for {
		evicted, err := v.evictIndex(ctx, v.maxVectors)
		if err != nil || !evicted {
			return err
		}
	}
}

// evictIndex drops the part of the longest idle owner if there are more than most vectors, 0 means no bound, and reports
// whether it did.
func (v *VectorFinder) evictIndex(ctx context.Context, most int) (evicted bool, err error) {
	owner, idx := v.acquireEvictable(most)
	if idx == nil {
		return false, nil
	}
	defer idx.releaseToken()
	return true, v.dropIndex(ctx, owner)
}

// addToIndex adds vectors to an owner's part. If there is no memory for them, parts of idle owners are dropped.
func (v *VectorFinder) addToIndex(ctx context.Context, owner agentsvc.Owner, docs []vectorstore.Document) error {
	for {
		err := v.index.UpsertDocuments(ctx, v.collectionName(owner), docs)
		if !errors.Is(err, vectorstore.ErrNoMemory) {
			return err
		}
		evicted, evictErr := v.evictIndex(ctx, -1)
		if evictErr != nil || !evicted {
			return cmp.Or(evictErr, err)
		}
	}
}

// acquireEvictable returns the part to drop next, for exclusive use, or nil if the index has no more than most vectors, 0
// means no bound, or all parts are in use.
func (v *VectorFinder) acquireEvictable(most int) (oldest agentsvc.Owner, found *ownerIndex) {
	v.mu.Lock()
	defer v.mu.Unlock()
	total := 0
	for owner, idx := range v.indexes {
		total += idx.indexed
		if len(idx.token) == 0 && (found == nil || idx.lastUsed.Before(found.lastUsed)) {
			oldest, found = owner, idx
		}
	}
	if most == 0 || total <= most || found == nil {
		return oldest, nil
	}
	select {
	case found.token <- struct{}{}:
		return oldest, found
	default:
		return oldest, nil
	}
}

// refreshIndex brings an owner's part of the index up to date with the rows; payer pays for new vectors. The caller
// holds its token.
func (v *VectorFinder) refreshIndex(ctx context.Context, payer agentsvc.Payer, owner agentsvc.Owner, idx *ownerIndex) error {
	ids, total, last, err := v.store.listIDsSince(ctx, owner, idx.indexedUntil-writeOverlap.Microseconds())
	if err != nil {
		return err
	}
	missing, err := v.index.FindMissing(ctx, v.collectionName(owner), ids)
	if err != nil {
		return err
	}
	// There are more vectors than rows: some memories were erased. The index cannot say which ones, so it is built
	// again.
	if indexed := idx.indexed + len(missing); idx.indexedUntil > 0 && indexed > total {
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
		if err := v.indexMemories(ctx, payer, owner, round); err != nil {
			return err
		}
	}
	// At least 1, since 0 means that the part was never refreshed.
	v.setIndexed(idx, total, max(last, 1))
	return v.evictIndexes(ctx)
}

// indexMemories adds memories to the index. Vectors that rows already have are used; the others are computed and
// stored.
func (v *VectorFinder) indexMemories(ctx context.Context, payer agentsvc.Payer, owner agentsvc.Owner, ids []string) error {
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
	vectors, err := v.embedder.Embed(ctx, payer, embedder.Document, texts)
	if err != nil {
		return err
	}
	for j, i := range unembedded {
		rows[i].vector = vectors[j]
	}
	// The vectors are stored with the rows before they are indexed: if the index is lost they need not be computed, and
	// paid for, again.
	if err := v.store.saveVectors(ctx, rows, unembedded, v.embedder.Model()); err != nil {
		return err
	}
	docs := make([]vectorstore.Document, len(rows))
	for i, r := range rows {
		docs[i] = vectorstore.Document{ID: r.id, Vector: r.vector}
	}
	return v.addToIndex(ctx, owner, docs)
}

// collectionName returns the name of an owner's collection: the tenant, and a hash of the embedder's model and the
// owner. Another model therefore gets a collection of its own.
func (v *VectorFinder) collectionName(owner agentsvc.Owner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", v.embedder.Model(), owner.Issuer, owner.Subject))
	return v.store.tenant + "-memory-" + hex.EncodeToString(sum[:16])
}
