package main

import (
	"path/filepath"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// newFolderGuard returns what keeps tenants from this server's own files, whatever folders they are granted: the folders of the
// database, of the configuration and of the exports, the files of secrets and keys, and the .env files that are read.
func (h *server) newFolderGuard() (*grant.Guard, error) {
	private := []string{".env"}
	if h.db.Engine() == db.SQLite {
		private = append(private, filepath.Dir(secretsFile(h.settings.databaseURL)))
	}
	if h.defaultApp.path != "" {
		private = append(private, filepath.Dir(h.defaultApp.path))
	}
	if home, ok := lookupEnv("HOME"); ok {
		private = append(private, filepath.Join(home, ".env"))
	}
	for _, name := range []string{adminSecretName, masterKeyName, metricsTokenName, stripeKeyName, webhookSecretName, notificationSecretName} {
		if path, ok := lookupEnv(name + "_FILE"); ok {
			private = append(private, path)
		}
	}
	if folder, ok := lookupEnv("STOA_EXPORT_FOLDER"); ok {
		private = append(private, folder)
	}
	if cfg := h.defaultApp.cfg.Load(); cfg != nil {
		for _, path := range []string{cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile, cfg.Logger.File} {
			if path != "" {
				private = append(private, path)
			}
		}
	}
	return grant.NewGuard(private...)
}
