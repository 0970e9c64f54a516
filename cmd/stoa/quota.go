package main

import (
	"stoa/agentsvc/store/quota"
)

// openStorageQuota opens the bound of what each app stores in the database (--app-stored-bytes, bytes; 0 = none). Its
// loop runs in any case, the database asks it only if there is a bound.
func (h *server) openStorageQuota() {
	h.storageQuota = quota.New(h.db, quota.Options{
		PerTenant: h.settings.appStoredBytes, Log: h.log,
		Advice: "storage.retention in the app's configuration has old tasks and conversations deleted, and the operator may give apps more (--app-stored-bytes)",
	})
	// SetQuota makes every write of a tenant ask the quota.
	if h.settings.appStoredBytes > 0 {
		h.db.SetQuota(h.storageQuota)
	}
}
