package server

import (
	"path/filepath"
	"strings"

	"stoa/tenancy/db"
	"stoa/tenancy/grant"
)

// newFolderGuard returns the guard that keeps tenants away from this server's own files: the folders of the database,
// of the configuration and of the exports, the files of secrets, keys and certificates, the log file, and the .env
// files that configfile.NewLookup reads. A grant of a folder that is, contains or lies in one of them is refused when it
// is made and again when it is used. The files with secrets among them are its own files, which the operator's app cannot
// reach either: its models would otherwise show them to any caller.
func newFolderGuard(o Options, d *db.DB) (*grant.Guard, error) {
	folders, files := []string{}, []string{".env"}
	if d.Engine() == db.SQLite {
		secrets := SecretsFile(o.Settings.Database.URL)
		database, _, _ := strings.Cut(strings.TrimPrefix(o.Settings.Database.URL, "sqlite://"), "?")
		folders = append(folders, filepath.Dir(secrets))
		files = append(files, secrets, database, database+"-wal", database+"-shm", database+"-journal")
	}
	if path := o.DefaultApp.path; path != "" {
		folders = append(folders, filepath.Dir(path))
		files = append(files, path, filepath.Join(filepath.Dir(path), ".env"))
	}
	if home, ok := lookupEnv("HOME"); ok {
		files = append(files, filepath.Join(home, ".env"))
	}
	// Secrets that are read from files (readSecret).
	for _, name := range []string{AdminSecretName, MasterKeyName, MetricsTokenName, stripeKeyName, WebhookSecretName, NotificationSecretName, DatabaseName, MigrateDatabaseName, redisName} {
		if path, ok := lookupEnv(name + "_FILE"); ok {
			files = append(files, path)
		}
	}
	if folder, ok := lookupEnv("STOA_EXPORT_FOLDER"); ok {
		folders = append(folders, folder)
	}
	// Files that the operator's configuration names.
	if cfg := o.DefaultApp.Config(); cfg != nil {
		for _, path := range []string{cfg.Server.TLS.CertFile, cfg.Server.TLS.KeyFile, cfg.Logger.Path()} {
			if path != "" {
				files = append(files, path)
			}
		}
	}
	guard, err := grant.NewGuard(append(folders, files...)...)
	if err != nil {
		return nil, err
	}
	return guard.WithOwnFiles(files...)
}
