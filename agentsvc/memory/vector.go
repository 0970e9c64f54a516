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

// Vector finds memories by their meaning. Its index is brought up to the rows at each question: memories that have no
// vector of the embedder's model get one, which is kept with the row; those that were erased are dropped.
type Vector struct {
	store *Store
	embed embedder.Embedder
	index vectorstore.Store
	bound int // vectors of all owners that may be indexed at once, 0 = any

	mu     sync.Mutex
	owners map[agentsvc.Owner]*shelf
}

// shelf is one owner's part of the index. Who has put a token into busy works on it alone; the rest is written under
// the vector's lock.
type shelf struct {
	busy  chan struct{}
	used  time.Time
	held  int
	since int64 // memories from before are indexed
}

const (
	// MaxIndexed is how many vectors an index in memory holds before those of the owners who have asked for nothing
	// the longest time are dropped. Their rows keep them.
	MaxIndexed = 20_000
	// perRound is how many memories are given vectors at once; each round is kept.
	perRound = 100
	// overlap covers memories that were written just before others and could be seen only after them.
	overlap = time.Minute
	// likeness is the least score of a memory that is recalled without being asked for.
	likeness = 0.2
)

// NewVector returns a finder that makes vectors with e and looks them up in index, which holds at most bound of them,
// any number if bound is 0.
func NewVector(s *Store, e embedder.Embedder, index vectorstore.Store, bound int) *Vector {
	return &Vector{store: s, embed: e, index: index, bound: bound, owners: map[agentsvc.Owner]*shelf{}}
}

// Find implements [Finder].
func (v *Vector) Find(ctx context.Context, owner agentsvc.Owner, question string, limit int, sure bool) ([]Memory, error) {
	if question = clean(question); question == "" {
		return nil, nil
	}
	sh, err := v.shelf(ctx, owner)
	if err != nil {
		return nil, err
	}
	defer sh.leave()
	if err := v.refresh(ctx, owner, sh); err != nil {
		return nil, err
	}
	if sh.held == 0 {
		v.remove(owner)
		return nil, nil
	}
	vectors, err := v.embed.Embed(ctx, embedder.Query, []string{question})
	if err != nil {
		return nil, err
	}
	q := vectorstore.Query{Vector: vectors[0], Limit: limit, MinScore: -1}
	if sure {
		q.MinScore = likeness
	}
	matches, err := v.index.Search(ctx, v.collection(owner), q)
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(matches))
	for i, m := range matches {
		ids[i] = m.ID
	}
	return v.store.byID(ctx, owner, ids)
}

// Forget implements [Finder].
func (v *Vector) Forget(ctx context.Context, owner agentsvc.Owner) error {
	sh, err := v.shelf(ctx, owner)
	if err != nil {
		return err
	}
	defer sh.leave()
	return v.drop(ctx, owner)
}

// shelf returns an owner's part of the index. Its caller works on it alone, until leave.
func (v *Vector) shelf(ctx context.Context, owner agentsvc.Owner) (*shelf, error) {
	for {
		v.mu.Lock()
		sh := v.owners[owner]
		if sh == nil {
			sh = &shelf{busy: make(chan struct{}, 1)}
			v.owners[owner] = sh
		}
		sh.used = time.Now()
		v.mu.Unlock()
		select {
		case sh.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		v.mu.Lock()
		stands := v.owners[owner] == sh
		v.mu.Unlock()
		if stands {
			return sh, nil
		}
		sh.leave() // it was dropped meanwhile
	}
}

func (sh *shelf) leave() { <-sh.busy }

// drop removes an owner's part of the index. The caller works on it alone.
func (v *Vector) drop(ctx context.Context, owner agentsvc.Owner) error {
	v.remove(owner)
	return v.index.Drop(ctx, v.collection(owner))
}

func (v *Vector) remove(owner agentsvc.Owner) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.owners, owner)
}

// hold notes what is indexed of an owner.
func (v *Vector) hold(sh *shelf, n int, since int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	sh.held, sh.since = n, since
}

// makeRoom drops parts of the index until it is within its bound: first those of owners who have not asked for the
// longest time, and none that is in use.
func (v *Vector) makeRoom(ctx context.Context) error {
	for {
		owner, sh := v.excess()
		if sh == nil {
			return nil
		}
		err := v.drop(ctx, owner)
		sh.leave()
		if err != nil {
			return err
		}
	}
}

// excess returns the part of the index to drop next, for its caller to work on alone, or nil.
func (v *Vector) excess() (oldest agentsvc.Owner, found *shelf) {
	v.mu.Lock()
	defer v.mu.Unlock()
	total := 0
	for owner, sh := range v.owners {
		total += sh.held
		if len(sh.busy) == 0 && (found == nil || sh.used.Before(found.used)) {
			oldest, found = owner, sh
		}
	}
	if v.bound == 0 || total <= v.bound || found == nil {
		return oldest, nil
	}
	select {
	case found.busy <- struct{}{}:
		return oldest, found
	default:
		return oldest, nil
	}
}

// refresh brings an owner's part of the index up to the rows. The caller holds its token.
func (v *Vector) refresh(ctx context.Context, owner agentsvc.Owner, sh *shelf) error {
	ids, total, last, err := v.store.since(ctx, owner, sh.since-overlap.Microseconds())
	if err != nil {
		return err
	}
	missing, err := v.index.Missing(ctx, v.collection(owner), ids)
	if err != nil {
		return err
	}
	if held := sh.held + len(missing); sh.since > 0 && held > total { // some are gone
		if err := v.index.Drop(ctx, v.collection(owner)); err != nil {
			return err
		}
		v.hold(sh, 0, 0)
		if ids, total, last, err = v.store.since(ctx, owner, 0); err != nil {
			return err
		}
		missing = ids
	}
	for round := range slices.Chunk(missing, perRound) {
		if err := v.add(ctx, owner, round); err != nil {
			return err
		}
	}
	v.hold(sh, total, max(last, 1))
	return v.makeRoom(ctx)
}

// add indexes memories.
func (v *Vector) add(ctx context.Context, owner agentsvc.Owner, ids []string) error {
	rows, err := v.store.vectors(ctx, owner, ids, v.embed.Model())
	if err != nil {
		return err
	}
	var texts []string
	var without []int
	for i, r := range rows {
		if r.vector == nil {
			without, texts = append(without, i), append(texts, r.text)
		}
	}
	made, err := v.embed.Embed(ctx, embedder.Document, texts)
	if err != nil {
		return err
	}
	for j, i := range without {
		rows[i].vector = made[j]
	}
	if err := v.store.keepVectors(ctx, rows, without, v.embed.Model()); err != nil {
		return err
	}
	docs := make([]vectorstore.Document, len(rows))
	for i, r := range rows {
		docs[i] = vectorstore.Document{ID: r.id, Vector: r.vector}
	}
	return v.index.Put(ctx, v.collection(owner), docs)
}

// collection names an owner's vectors of the embedder's model. It begins with the tenant.
func (v *Vector) collection(owner agentsvc.Owner) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", v.embed.Model(), owner.Issuer, owner.Subject))
	return v.store.tenant + "-memory-" + hex.EncodeToString(sum[:16])
}
