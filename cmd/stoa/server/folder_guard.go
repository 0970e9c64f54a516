package server

import (
	"path/filepath"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// newFolderGuard returns the guard that keeps tenants away from this server's own files: the folders of the database,
// of the configuration and of the exports, the files of secrets, keys and certificates, the log file, and the .env
// files that configfile.NewLookup reads. A grant of a folder that is, contains or lies in one of them is refused when it
// is made and again when it is used.
func newFolderGuard(o Options, d *db.DB) (*grant.Guard, error) {
	private := []string{".env"}
	if d.Engine() == db.SQLite {
		private = append(private, filepath.Dir(SecretsFile(o.Settings.Database.URL)))
	}
	if o.DefaultApp.path != "" {
		private = append(private, filepath.Dir(o.DefaultApp.path))
	}
	if home, ok := lookupEnv("HOME"); ok {
		private = append(private, filepath.Join(home, ".env"))
	}
	// Secrets that are read from files (readSecret).
	for _, name := range []string{AdminSecretName, MasterKeyName, MetricsTokenName, StripeKeyName, WebhookSecretName, NotificationSecretName, DatabaseName, MigrateDatabaseName, redisName} {
		if path, ok := lookupEnv(name + "_FILE"); ok {
			private = append(private, path)
		}
	}
	if folder, ok := lookupEnv("STOA_EXPORT_FOLDER"); ok {
		private = append(private, folder)
	}
	// Files that the operator's configuration names.
	if cfg := o.DefaultApp.Config(); cfg != nil {
		for _, path := range []string{cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile, cfg.Logger.File} {
			if path != "" {
				private = append(private, path)
			}
		}
	}
	return grant.NewGuard(private...)
}
