package indexing

import (
	"context"
	"errors"

	"stoa/agentsvc"
	"stoa/agentsvc/document/corpus"
)

// ApplyConfiguration adapts the rows of an app's document stores to its current configuration, which has the stores of
// specs: new and changed ones get a pass, those that have left become invisible and get passes that delete them. The caller
// must know that no newer configuration is in force, because a store that is missing in specs is deleted.
func ApplyConfiguration(ctx context.Context, rows *corpus.Store, specs []corpus.StoreSpec) error {
	configured := map[string]bool{}
	var errs []error
	for _, spec := range specs {
		configured[spec.Name] = true
		// A store whose name is still being deleted is made again by the pass that deletes it.
		if _, err := rows.Index.EnsureStore(ctx, spec); err != nil && !errors.Is(err, agentsvc.CodeState) {
			errs = append(errs, err)
		}
	}
	present, err := rows.Documents.ListStores(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, s := range present {
		if configured[s.Name] {
			continue
		}
		if _, err := rows.Index.DropStore(ctx, s.Name, 1); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, rows.Index.RequestPass(ctx, s.Name))
	}
	return errors.Join(errs...)
}
