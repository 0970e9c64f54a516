package corpus

import (
	"context"

	"stoa/agentsvc"
	"stoa/tenancy/db"
)

// StoreSpec is a document store as the configuration describes it.
type StoreSpec struct {
	Name   string
	Source string // its type
	// Recipe identifies how chunks and vectors are made: versions of extraction and chunking, their settings, the model of
	// the vectors and their dimension. Another recipe means another generation.
	Recipe string
	// Embedder is the model of the vectors, "" = none.
	Embedder string
	// Revision is that of the configuration. A spec of an earlier revision than the stored one changes nothing, so that two
	// processes with different revisions do not replace each other's recipe.
	Revision int64
}

// Generations are the generations of a store. A generation is one index of all of its documents, made by one recipe; it
// has nothing to do with the generation of the app, and outlives revisions of the documents in it.
type Generations struct {
	Live     int64
	Building int64 // 0 = none
	// Changed means that the call has changed the row.
	Changed bool
	// Outdated means that the row is of a later revision than the spec, and of another recipe. The spec has changed nothing,
	// and its holder must not index by it.
	Outdated bool
}

// Target returns the generation that documents are indexed in: the one being built, else the live one.
func (g Generations) Target() int64 {
	if g.Building != 0 {
		return g.Building
	}
	return g.Live
}

// EnsureStore creates the rows of a document store, or adapts them to the configuration. If the recipe has changed it
// begins a new generation and marks every document as pending; if it has changed back it abandons the one being built. It
// requests a pass when it has changed something. The error is [agentsvc.CodeState] while a store of that name is being
// removed (see [Index.DropStore]).
func (x *Index) EnsureStore(ctx context.Context, spec StoreSpec) (Generations, error) {
	if g, isCurrent, err := x.isStoreCurrent(ctx, spec); err != nil || isCurrent {
		return g, err
	}
	var g Generations
	err := x.runTx(ctx, "adapt a document store to its configuration", func(t *tx) (err error) {
		if err = t.lockTenant(ctx); err == nil {
			g, err = t.ensureStore(ctx, spec)
		}
		return err
	})
	return g, err
}

// storeRow is a row of document_store.
type storeRow struct {
	StoreSpec
	Generations
	buildingRecipe, buildingEmbedder string
	latest                           int64
	state                            string
}

// storeColumns are read by scanStore.
const storeColumns = `SELECT source, config_revision, generation, recipe, embedder, building, building_recipe, building_embedder, latest_generation, state
	FROM document_store WHERE tenant = $1 AND store = $2`

func (s *storeRow) scanStore(r db.Row) error {
	return r.Scan(&s.Source, &s.Revision, &s.Live, &s.Recipe, &s.Embedder, &s.Building, &s.buildingRecipe, &s.buildingEmbedder, &s.latest, &s.state)
}

// matches reports whether the row needs no change for spec.
func (s *storeRow) matches(spec StoreSpec) bool {
	switch {
	case s.state != "":
		return false
	case spec.Revision < s.Revision:
		return true
	case spec.Revision != s.Revision || spec.Source != s.Source:
		return false
	case s.Building != 0:
		return s.buildingRecipe == spec.Recipe && s.buildingEmbedder == spec.Embedder
	}
	return s.Recipe == spec.Recipe && s.Embedder == spec.Embedder
}

// isNewerThan reports whether the row is of a later revision than spec and of another recipe.
func (s *storeRow) isNewerThan(spec StoreSpec) bool {
	recipe, embedder := s.Recipe, s.StoreSpec.Embedder
	if s.Building != 0 {
		recipe, embedder = s.buildingRecipe, s.buildingEmbedder
	}
	return spec.Revision < s.Revision && (recipe != spec.Recipe || embedder != spec.Embedder)
}

// isStoreCurrent reports whether the store exists and needs no change. It is the usual case, and locks nothing.
func (x *Index) isStoreCurrent(ctx context.Context, spec StoreSpec) (g Generations, isCurrent bool, err error) {
	var s storeRow
	err = x.read(ctx, "read a document store", func(r db.Row) error {
		if err := s.scanStore(r); err != nil {
			return err
		}
		isCurrent = s.matches(spec)
		s.Outdated = s.isNewerThan(spec)
		return nil
	}, storeColumns, x.tenant, spec.Name)
	return s.Generations, isCurrent, err
}

// ensureStore carries out [Index.EnsureStore]. The transaction has the tenant's lock.
func (t *tx) ensureStore(ctx context.Context, spec StoreSpec) (Generations, error) {
	if spec.Name == "" || len(spec.Name) > maxIDBytes || !isStorableText(spec.Name) {
		return Generations{}, agentsvc.NewInvalidError("name", "is not a name of a document store")
	}
	var s storeRow
	found := false
	err := t.Query(ctx, func(r db.Row) error {
		found = true
		return s.scanStore(r)
	}, storeColumns+t.lockRow(), t.tenant, spec.Name)
	switch {
	case err != nil:
		return Generations{}, err
	case !found:
		return t.createStore(ctx, spec)
	case s.state != "":
		return Generations{}, agentsvc.NewError(agentsvc.CodeState, "the documents of an earlier store named %s are being deleted: try again later", spec.Name)
	case s.matches(spec):
		s.Outdated = s.isNewerThan(spec)
		return s.Generations, nil
	case s.Recipe == spec.Recipe && s.Embedder == spec.Embedder:
		err = t.abandonGeneration(ctx, spec.Name, &s)
	case s.Building == 0 || s.buildingRecipe != spec.Recipe || s.buildingEmbedder != spec.Embedder:
		err = t.beginGeneration(ctx, spec, &s)
	}
	if err == nil {
		_, err = t.Exec(ctx, `UPDATE document_store SET source = $3, config_revision = $4, building = $5, building_recipe = $6, building_embedder = $7,
				latest_generation = $8, updated_at = stoa_now() WHERE tenant = $1 AND store = $2`,
			t.tenant, spec.Name, spec.Source, spec.Revision, s.Building, s.buildingRecipe, s.buildingEmbedder, s.latest)
	}
	if err == nil {
		err = t.requestPass(ctx, spec.Name)
	}
	s.Changed = true
	return s.Generations, err
}

// createStore inserts the rows of a new store.
func (t *tx) createStore(ctx context.Context, spec StoreSpec) (Generations, error) {
	_, err := t.Exec(ctx, `INSERT INTO document_store (tenant, store, source, config_revision, generation, recipe, embedder, building, building_recipe,
			building_embedder, latest_generation, state, error, embedded_tokens, updated_at)
		VALUES ($1, $2, $3, $4, 1, $5, $6, 0, '', '', 1, '', '', 0, stoa_now())`, t.tenant, spec.Name, spec.Source, spec.Revision, spec.Recipe, spec.Embedder)
	if err == nil {
		_, err = t.Exec(ctx, `INSERT INTO index_pass (tenant, store, epoch, holder, due_at, requested, cursor, attempts, removal_allowed, served_at)
			VALUES ($1, $2, 0, '', stoa_now(), FALSE, '', 0, FALSE, 0)`, t.tenant, spec.Name)
	}
	return Generations{Live: 1, Changed: true}, err
}

// beginGeneration begins a generation for another recipe: every document is indexed again.
func (t *tx) beginGeneration(ctx context.Context, spec StoreSpec, s *storeRow) error {
	s.latest++
	s.Building, s.buildingRecipe, s.buildingEmbedder = s.latest, spec.Recipe, spec.Embedder
	_, err := t.Exec(ctx, `UPDATE document SET waiting_since = CASE WHEN state = 'pending' THEN waiting_since ELSE stoa_now() END, state = 'pending', error = '',
			attempts = 0, available_at = stoa_now()
		WHERE tenant = $1 AND store = $2`, t.tenant, spec.Name)
	return err
}

// abandonGeneration ends the building of a generation: the configuration has the recipe of the live one again.
func (t *tx) abandonGeneration(ctx context.Context, store string, s *storeRow) error {
	s.Building, s.buildingRecipe, s.buildingEmbedder = 0, "", ""
	// What was indexed in the abandoned generation alone waits again, and what had failed there is tried again.
	_, err := t.Exec(ctx, `UPDATE document SET error = '', attempts = 0, available_at = stoa_now(),
			state = CASE WHEN (id, revision) IN (SELECT l.document, l.revision FROM document_live l WHERE l.tenant = $1 AND l.store = $2 AND l.generation = $3)
				THEN 'indexed' ELSE 'pending' END,
			waiting_since = CASE WHEN state = 'pending' THEN waiting_since ELSE stoa_now() END
		WHERE tenant = $1 AND store = $2`, t.tenant, store, s.Live)
	return err
}
