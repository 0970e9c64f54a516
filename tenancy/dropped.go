package tenancy

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// describeDropped adds to e's warnings and to the detail of its audit entry how many documents are deleted because their
// document stores leave the configuration. They are counted before the change: it is the indexer that deletes them later.
func (s *store) describeDropped(ctx context.Context, e *appEdit) error {
	if s.options.CountDocuments == nil || s.options.DecodeConfig == nil || string(e.previous.config) == string(e.config) {
		return nil
	}
	dropped := s.documentStores(e.previous.config)
	if len(dropped) == 0 {
		return nil
	}
	kept := s.documentStores(e.config)
	maps.DeleteFunc(dropped, func(name string, _ any) bool {
		_, is := kept[name]
		return is
	})
	if len(dropped) == 0 {
		return nil
	}
	counts, err := s.options.CountDocuments(ctx, e.app.ID)
	if err != nil {
		return fmt.Errorf("count the documents of app %s: %w", e.app.ID, err)
	}
	recorded := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		n := counts[name]
		if n == 0 {
			continue
		}
		e.app.Config.Warnings = append(e.app.Config.Warnings, newDroppedWarning(name, n))
		if len(recorded) < maxChangedPaths {
			recorded[name] = n
		}
	}
	if len(recorded) > 0 {
		e.detail["dropped_documents"] = recorded
	}
	return nil
}

// newDroppedWarning returns the warning of a document store with n documents. It has no position: the text that it is
// about does not have the store.
func newDroppedWarning(store string, n int) Warning {
	deleted := fmt.Sprintf("its %d documents are deleted", n)
	if n == 1 {
		deleted = "its 1 document is deleted"
	}
	return Warning{Path: "document_stores." + store, Message: "the store leaves the configuration: " + deleted}
}

// documentStores returns the document stores of a configuration by name, none for a text that cannot be decoded.
func (s *store) documentStores(config []byte) map[string]any {
	doc, err := s.options.DecodeConfig(config)
	if err != nil {
		return nil
	}
	stores, _ := doc["document_stores"].(map[string]any)
	return stores
}
