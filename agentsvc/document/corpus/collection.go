package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"stoa/tenancy/db"
)

// CollectionName returns the name of the collection that has the vectors of a generation in an external vector store. No two
// tenants, stores, generations or models share one, so that no filter has to keep them apart.
func CollectionName(tenant db.ID, store string, generation int64, model string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %q", tenant, store, generation, model))
	return hex.EncodeToString(sum[:16])
}
