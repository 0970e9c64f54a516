package main

import "stoa/agentsvc/store"

// openStorageQuota bounds what each app stores in the database.
func (h *server) openStorageQuota() {
	h.storageQuota = store.NewQuota(h.db, store.QuotaOptions{
		PerTenant: h.settings.appStoredBytes, Log: h.log,
		Advice: "storage.retention in the app's configuration has old tasks and conversations deleted, and the operator may give apps more (--app-stored-bytes)",
	})
	if h.settings.appStoredBytes > 0 {
		h.db.SetQuota(h.storageQuota)
	}
}
